"""The client side: connections, the request pipeline, four-letter words."""
