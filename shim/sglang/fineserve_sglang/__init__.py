"""SGLang on slabs leased from FineServe's pool; see plugin.py."""
