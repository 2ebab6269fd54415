"""What a person looks at: one picture of the machine, made of the readings of its collectors."""
