"""
The pages of nsqadmin, rendered by the server.

They are complete without scripts; with them, figures and charts change by themselves (`live`). A page is one
declaration, a view with `@page` (`page`); an action is a row of `action_forms.FORMS`.
"""
