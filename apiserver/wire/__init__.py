"""HTTP requests and answers: negotiation, decoding of bodies, forms. Pure, except `response`."""
