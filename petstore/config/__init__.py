"""What a deployer chose: settings, keys and a backend, checked before anything is opened."""
