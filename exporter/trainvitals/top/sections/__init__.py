"""What the screen is made of, a module for each part."""
