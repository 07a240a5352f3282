"""Text from outside: how strict its JSON must be, and how messages say what is wrong with it."""
