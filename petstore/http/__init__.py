"""What happens to a request, from its route to the repository and back."""
