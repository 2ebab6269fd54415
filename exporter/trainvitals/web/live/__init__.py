"""The live page at `/`: the machine as a person looks at it, drawn anew while somebody does."""
