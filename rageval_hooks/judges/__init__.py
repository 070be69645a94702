"""Language models as judges: one question and a schema in, one checked answer or one typed failure out."""
