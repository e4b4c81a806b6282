"""Topics as one HTML file: a map, the words of a topic, the topics of a word; needs no network.

values.py    what the script draws, and the map: Jensen-Shannon distances in the plane
write.py     the views of the templates, and the file
"""
