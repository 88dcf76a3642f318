"""The toolkit inside other libraries, a module for each; nothing else imports them."""
