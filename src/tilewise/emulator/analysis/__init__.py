"""What is known of a kernel before it is lowered: its flow, the shapes of its values, what is live where."""
