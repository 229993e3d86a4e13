"""What decides over rounds, and what is kept between them."""
