"""What is handed to others: the chart, images, and the files made of them."""
