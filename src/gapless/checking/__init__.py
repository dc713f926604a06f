"""Races in recordings of running programs. The judge is ``model/races.py``; here its questions are put together."""
