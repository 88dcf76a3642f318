"""Who is whose neighbor: hubs, and how modalities and classes mix."""
