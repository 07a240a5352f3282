"""The model that a repository is compared with: the state machine, the values, the comparison."""
