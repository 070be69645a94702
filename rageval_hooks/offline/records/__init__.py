"""Reading and writing records in every supported file format."""
