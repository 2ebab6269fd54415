"""The observation of PyTorch's training loops that report nothing themselves."""
