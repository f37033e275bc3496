"""Lists as clients get them, from cached encodings of neighbouring objects.

    index entries   a  b  c  d │ e  f  g │ h  i  j  k │ …      in key order
                    ─────┬──────────┬─────────┬────────
    Group              Group      Group     Group              neighbours that share cached encodings
                         │          │         │
    Chunk           objects[0:4]   [4:7]     [7:11]            one list, cut where its groups end
                         │          │         │                + one form (JSON, Table, protobuf, …)
    Encoding         encoding   encoding   (missing)           cached in the group, or made in steps
                         │          │         │
    Piece           b'{"items":[' piece , piece , piece b']}'  in the order of sending
                         │
    response        text, or one gzip member that is joined from compressed pieces

Read in this order:

* `chunk`: `ListRange` says what a list shows. `chunks` cuts its entries.
* `group`: a `Group` keeps the encodings of its members. A write removes one member and no other encoding.
* `encoding`: an `Encoding` is a chunk or an object in one form. `EncodingCache` limits the bytes of all encodings.
* `piece`: a `Piece` is a part of an answer, as text and compressed. A `Step` is work that must be done before the next piece.
* `gzip`: compressed encodings, and one gzip stream of many of them.

The package knows bytes and entries. `wire.forms` knows what an object looks like in each form. It may import `watchcache` only.
"""
