"""What happens to a request, from the outermost middleware to the repository and back."""
