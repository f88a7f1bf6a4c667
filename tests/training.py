"""A step of training held against float64, on any device: what tests of the emulator and of a GPU share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tilewise as tw
from tilewise.devices import Device
from tilewise.nn.float64_model import Float64Model
from tilewise.nn.step_launches import GRADIENT_SCALE
from tilewise.nn.trainer import Trainer

Array = npt.NDArray[Any]


def begin(
    options: tw.nn.TrainingOptions, device: Device | str, count: int = 3
) -> tuple[Trainer, Array, Array]:
    """A trainer of samples that are mostly 0, as images are, with biases and velocities that are not."""
    random = np.random.default_rng()
    samples = random.standard_normal((count * options.batch, 784)).astype(np.float16)
    samples[random.random(samples.shape) < 0.7] = 0
    labels = random.integers(0, 10, len(samples)).astype(np.uint8)
    network = tw.nn.Network.begin(options)
    for layer in network.layers[:-1]:
        layer.bias[:] = random.standard_normal(layer.bias.shape) * 0.1
        layer.bias_velocities[:] = random.standard_normal(layer.bias.shape) * 0.01
        if layer.velocities is not None:
            layer.velocities[:] = random.standard_normal(layer.velocities.shape) * 0.01
    network.layers[-1].bias[:10] = random.standard_normal(10) * 0.1
    return Trainer(network, options, samples, labels, device), samples, labels


def check_step(options: tw.nn.TrainingOptions, device: Device | str) -> None:
    """Hold what each launch of a step writes against float64, made of what the launch read."""
    trainer, samples, labels = begin(options, device)
    before = trainer.read_network()
    model = Float64Model(before, options)
    rows = np.random.default_rng().permutation(len(samples))[: options.batch]
    losses, classes = trainer.train(rows)
    x, y = samples[rows].astype(np.float64), labels[rows]
    assert (np.abs(losses - model.losses(x, y)) <= model.loss_bounds(x, y)).all()

    outputs = [np.pad(x, ((0, 0), (0, 16))), *(one.astype(np.float64) for one in trainer.read_outputs())]
    gradients = [one.astype(np.float64) for one in trainer.read_gradients()]
    halves = [layer.weights.astype(np.float64) for layer in before.layers]
    for number, (weights, layer) in enumerate(zip(halves, before.layers, strict=True)):
        sums = outputs[number] @ weights.T + layer.bias
        room = 2.0**-20 * (np.abs(outputs[number]) @ np.abs(weights.T) + 1)
        if number < 3:
            made = np.maximum(sums, 0)
            assert (np.abs(outputs[number + 1] - made) <= room + 2.0**-11 * made + 2.0**-24).all()
        else:
            shares = np.exp(sums[:, :10] - sums[:, :10].max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            slope = np.zeros_like(sums)
            slope[:, :10] = shares
            slope[np.arange(len(y)), y] -= 1
            assert (np.abs(gradients[3] / GRADIENT_SCALE - slope) <= 2.0**-11 * np.abs(slope) + 1e-5).all()
            top = np.sort(sums[:, :10])
            clear = top[:, -1] - top[:, -2] > 1e-3
            assert (classes == sums[:, :10].argmax(1))[clear].all()
    for number in (1, 2, 3):
        made = (gradients[number] @ halves[number]) * (outputs[number] > 0)
        room = 2.0**-20 * (np.abs(gradients[number]) @ np.abs(halves[number])) + 2.0**-24
        assert (np.abs(gradients[number - 1] - made) <= room + 2.0**-11 * np.abs(made)).all()
    check_update(options, before, trainer.read_network(), outputs, gradients)


def check_shared_update(options: tw.nn.TrainingOptions, device: Device | str, batches: int) -> None:
    """Hold what batches do that update the hidden layers' weights at once against float64: each sees the weights that
    those before it leave, and the last one writes them."""
    trainer, samples, _ = begin(options, device, count=batches)
    before, before_ahead = trainer.read_network(), trainer.read_ahead()
    rows = np.random.default_rng().permutation(len(samples))
    trainer.train(rows)
    after, after_ahead = trainer.read_network(), trainer.read_ahead()
    scale, kept = 1 / (GRADIENT_SCALE * options.batch), 1 - options.rate * options.decay
    outputs = [_widen(trainer.read_outputs(i)) for i in reversed(range(batches))]
    gradients = [_widen(trainer.read_gradients(i)) for i in reversed(range(batches))]
    check_own_updates(options, before, after, samples[rows], outputs, gradients)
    for number in (1, 2):
        old, new = before.layers[number], after.layers[number]
        seen, whole, bias, bias_velocity = _widen([old.weights, old.master, old.bias, old.bias_velocities])
        velocity = np.zeros_like(whole) if old.velocities is None else old.velocities.astype(np.float64)
        most = np.abs(whole)  # of what a weight is on its way
        moved = np.zeros_like(whole)  # by the gradients so far, at most
        for made, slopes in zip(outputs, gradients, strict=True):
            x, slope = made[number - 1], slopes[number]
            sums, size = x @ seen.T + bias, np.abs(x) @ np.abs(seen.T) + np.abs(bias) + 1
            expected = np.maximum(sums, 0)
            room = 2.0**-20 * size + 2.0**-11 * (expected + np.abs(x) @ moved.T) + 2.0**-24
            assert (np.abs(made[number] - expected) <= room).all()
            expected = (slope @ seen) * (x > 0)
            room = 2.0**-20 * (np.abs(slope) @ np.abs(seen)) + 2.0**-24
            room += 2.0**-11 * (np.abs(expected) + np.abs(slope) @ moved)
            assert (np.abs(slopes[number - 1] - expected) <= room).all()
            gradient = scale * slope.T @ x
            moved = kept * moved + options.rate * scale * np.abs(slope.T) @ np.abs(x)
            # NOTE: products are of halves as they lie in memory, and of updates that are exact beside them.
            ahead = before_ahead[number]
            seen = (kept * seen if ahead is None else ahead.astype(np.float64)) - options.rate * gradient
            velocity = options.momentum * velocity + gradient + options.decay * whole
            whole = whole - options.rate * velocity
            most = np.maximum(most, np.abs(whole))
            bias_velocity = options.momentum * bias_velocity + scale * slope.sum(0) + options.decay * bias
            bias = bias - options.rate * bias_velocity
        assert np.array_equal(new.weights, new.master.astype(np.float16))
        room = 2.0**-20 * (moved + options.rate * np.abs(velocity)) + 2.0**-23 * batches * most + 2.0**-24
        assert (np.abs(new.master - whole) <= room).all()
        assert (np.abs(new.bias - bias) <= 2.0**-19 * (np.abs(bias) + 1)).all()
        assert np.abs(whole - old.master).max() > 100 * room.max()  # or there was nothing to see
        if (ahead := after_ahead[number]) is not None:
            next_step = options.momentum * new.velocities + options.decay * new.master  # type: ignore[operator]
            expected = new.master - options.rate * next_step
            assert (np.abs(ahead - expected) <= 2.0**-11 * np.abs(expected) + 2.0**-24).all()


def check_own_updates(
    options: tw.nn.TrainingOptions,
    before: tw.nn.Network,
    after: tw.nn.Network,
    samples: Array,
    outputs: list[list[Array]],
    gradients: list[list[Array]],
) -> None:
    """The first layer and the last one are updated by each batch, also where those between are not."""
    scale = 1 / (GRADIENT_SCALE * options.batch)
    padded = np.pad(samples.astype(np.float64), ((0, 0), (0, 16)))
    for number in (0, 3):
        old, new = before.layers[number], after.layers[number]
        whole = old.master.astype(np.float64)
        velocity = np.zeros_like(whole) if old.velocities is None else old.velocities.astype(np.float64)
        most, size = np.abs(whole), np.abs(velocity)
        for i, (made, slopes) in enumerate(zip(outputs, gradients, strict=True)):
            x = made[2] if number else padded[i * options.batch :][: options.batch]
            slope = scale * slopes[number]
            velocity = options.momentum * velocity + slope.T @ x + options.decay * whole
            whole = whole - options.rate * velocity
            most = np.maximum(most, np.abs(whole))
            size = size + np.abs(slope.T) @ np.abs(x) + options.decay * most
        room = 2.0**-20 * options.rate * size + len(outputs) * (2.0**-23 * most + 2.0**-24) + 1e-12
        assert (np.abs(new.master - whole) <= room).all()
        assert np.abs(whole - old.master).max() > 10 * room.max()  # or there was nothing to see


def _widen(arrays: list[Array]) -> list[Array]:
    return [one.astype(np.float64) for one in arrays]


def check_update(
    options: tw.nn.TrainingOptions,
    before: tw.nn.Network,
    after: tw.nn.Network,
    outputs: list[Array],
    gradients: list[Array],
) -> None:
    scale = 1 / (GRADIENT_SCALE * options.batch)
    for number, (old, new) in enumerate(zip(before.layers, after.layers, strict=True)):
        assert np.array_equal(new.weights, new.master.astype(np.float16))
        weights, slope = old.master.astype(np.float64), gradients[number] * scale
        gradient = slope.T @ outputs[number] + options.decay * weights
        size = np.abs(slope.T) @ np.abs(outputs[number]) + options.decay * np.abs(weights)
        velocities = 0.0 if old.velocities is None else old.velocities.astype(np.float64)
        made = options.momentum * velocities + gradient
        size = 2.0**-20 * (size + np.abs(velocities))
        if new.velocities is not None:
            assert (np.abs(new.velocities - made) <= size + 1e-12).all()
        # NOTE: a weight near 0 is kept in steps of 2^-25 (see split_weight.cuh).
        stepped = weights - options.rate * made
        kept = np.where(
            np.abs(stepped) < 2.0**-16, 2.0**-24, 2.0**-23 * np.maximum(abs(weights), abs(stepped))
        )
        assert (np.abs(new.master - stepped) <= options.rate * size + kept + 1e-12).all()
        bias = slope.sum(0) + options.decay * old.bias + options.momentum * old.bias_velocities
        room = 2.0**-19 * (np.abs(slope).sum(0) + np.abs(old.bias) + np.abs(old.bias_velocities)) + 1e-12
        assert (np.abs(new.bias - (old.bias - options.rate * bias)) <= room).all()


def same_network(one: tw.nn.Network, other: tw.nn.Network) -> None:
    arrays, others = one.to_arrays(), other.to_arrays()
    assert arrays.keys() == others.keys()
    assert all(array.tobytes() == others[name].tobytes() for name, array in arrays.items())
