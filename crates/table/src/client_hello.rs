//! From the first bytes of a connection to the server name that the client asks for.
