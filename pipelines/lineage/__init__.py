"""What became of a record, and what bronze lacks of Kafka."""
