"""
Consuming over HTTP: long polls, server-sent events and WebSocket, under /v2/subscribe.

    section        the endpoints, and the checks of their parameters
    poll           polls: requests that wait, and the one consumer that they share
    stream         the common part of events and WebSocket
    events         server-sent events
    websocket      WebSocket, over wsproto; handshake, client_message: its opening, and the messages of its client
    subscription   a consumer of a channel, whichever of them it serves
    subscribers    all subscriptions of a broker, by number
    tokens         the names of deliveries, which a client gives back
    right          permissions that end while a request waits
"""
