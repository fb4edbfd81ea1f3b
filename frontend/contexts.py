"""One frozen dataclass per page: what its template may use, each field with its meaning."""
