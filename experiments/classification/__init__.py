"""Classification of tables: few records, several tables."""
