"""
The command `nsqtw`: one verb for each thing an operator does with a cluster or with the files of a broker.

    verbs        the declarations of all verbs: words, parameters, function
    commands     the click commands made from the declarations
    main         the console script: errors become one line and an exit code
    failures     errors in words, and the exit code of each
    contexts     named clusters in the user's config file
    session      the run of one verb: options, output, cluster and questions
    output       results as tables, text or JSON
    run          the reactor, for one coroutine
    completion   words that the shell completes

The functions of the verbs are in the other modules, and each is imported when its verb runs: `nsqtw --help` loads
neither Twisted nor rich.
"""

PROGRAM = "nsqtw"
"""The name of the console script."""
