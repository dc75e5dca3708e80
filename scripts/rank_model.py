"""scripts/rank_model.py: what a training step sends, and its seconds by the α–β model: a message takes
alpha seconds, each byte beta seconds more, and all pairs of ranks have links of their own.
"""
import statistics

SMALL, LARGE = 2048, 1 << 20  # bytes: of a message, of all ranks' pieces
ITEM = 4  # bytes of a float32
RANKS = [2 ** i for i in range(13)]  # 1 to 4,096
MODELS = {  # name: width, layers, vocabulary, positions
    "10 M parameters, 12 layers": (256, 12, 256, 1024),
    "163 M parameters, 12 layers": (768, 12, 50257, 1024),  # GPT-2, its head apart
    "1.64 G parameters, 48 layers": (1600, 48, 50257, 1024),  # GPT-2 XL, its head apart
}


def units(width, layers, vocabulary, positions):
    """Elements of the parameters outside of layers, then of each layer, of `tenon train text`."""
    outside = (2 * vocabulary + positions) * width + 2 * width
    layer = 12 * width * width + 13 * width
    return [outside] + [layer] * layers


def fit(rows):
    """alpha, the median of messages up to 2 KiB; beta, that of 1 MiB and more. `rows` are what
    bench_link prints."""
    alpha = statistics.median(row["seconds"] / (row["ranks"] - 1)
                              for row in rows if row["bytes"] <= SMALL * row["ranks"])
    beta = statistics.median(
        (row["seconds"] - (row["ranks"] - 1) * alpha) * row["ranks"] / (row["ranks"] - 1)
        / row["bytes"] for row in rows if row["bytes"] >= LARGE)
    return alpha, beta


def collective_seconds(ranks, size, alpha, beta):
    """Of a reduce-scatter or an all-gather of `size` bytes."""
    return (ranks - 1) * alpha + (ranks - 1) / ranks * size * beta


def collectives(elements, shard, ranks):
    """The sizes in bytes of a step's collectives; one slice for each rank."""
    padded = [ITEM * -(-number // ranks) * ranks for number in elements]
    if shard < 3:
        return 2 * padded
    # Parameters outside of layers, and the last layer, are gathered once.
    return 3 * padded[1:-1] + 2 * (padded[:1] + padded[-1:])


def median_error(rows, alpha, beta):
    """Of the model beside what bench_link measured, relative."""
    return statistics.median(
        abs(collective_seconds(row["ranks"], row["bytes"], alpha, beta) / row["seconds"] - 1)
        for row in rows)


def step_seconds(elements, shard, ranks, alpha, beta):
    """Of communication alone: what computing can hide is not taken off."""
    return sum(collective_seconds(ranks, size, alpha, beta)
               for size in collectives(elements, shard, ranks))


def least_wait(shard, computing, transfer, layers):
    """Of the schedule in sharded_model.h over a link that is never late: equal layers, backward
    twice as long as forward, transfers one after another. Seconds."""
    forward, backward = computing / layers / 3, 2 * computing / layers / 3
    each = transfer / (3 * layers - 1 if shard == 3 else 2 * layers)
    now = link = waited = 0

    def start():
        nonlocal link
        link = max(link, now) + each
        return link

    def wait(end):
        nonlocal now, waited
        waited += max(0, end - now)
        now = max(now, end)

    reducing = 0
    if shard in (1, 2):
        gathered = [start(), start()]
        for i in range(layers):
            wait(gathered[i])
            while len(gathered) < min(layers, i + 3):
                gathered.append(start())
            now += forward
        for i in range(layers):
            now += backward
            wait(reducing)
            reducing = start()
    elif shard == 3:
        gathered = [start()]
        for i in range(layers):
            wait(gathered[i])
            if i == 0 and layers > 1:
                gathered.append(start())
            now += forward
            if i + 2 < layers:
                gathered.append(start())
        gathered = [now, start()]
        for i in range(layers):
            wait(gathered[i])
            now += backward
            wait(reducing)
            reducing = start()
            if i + 2 < layers:
                gathered.append(start())
    else:
        now += computing / 3
        for i in range(layers):
            now += backward
            wait(reducing)
            if i > 0:
                start()  # the sum of the layer before is gathered
            reducing = start()
        wait(reducing)
        start()
    wait(link)
    return waited
