"""Owns how a build's report is written: the page for people, JUnit XML, SARIF, trace events, GitHub's lines.

May import nothing of the build but the report and its events.
"""
