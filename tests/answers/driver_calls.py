"""What the driver of GPUs is told, in which order, and what is answered and refused: on GPUs whose memory is the host's.

A line is a text of steps, each with its answer and, behind ``‹``, what the driver was told meanwhile. Addresses are shown
by the number of the buffer that they lie in.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewise as tw
from tests import pretended_gpu
from tests.answers.shown import show
from tests.pretended_gpu import PretendedDriver, pretend
from tests.telling_driver import KERNELS, REAL, SUCCESS, CoreError, Driver, X
from tilewise import interop
from tilewise.calls import start_on_gpu
from tilewise.devices import exchange, gpu
from tilewise.devices.arguments import pack
from tilewise.devices.gpu import device as gpu_device
from tilewise.devices.gpu import driver as words
from tilewise.devices.gpu import driver_tensor_map, launches, pool_memory, streams
from tilewise.devices.gpu.arrays import GpuArray
from tilewise.devices.gpu.device import find_gpu
from tilewise.devices.gpu.ledger import Ledger, launch_of, shape_of
from tilewise.errors import ArgumentError, DeviceError, TilewiseError
from tilewise.launch import Launch, Parameter
from tilewise.toolchain.binary import Binary, Entry

LINES = """
bare("d = gpu.open(«0|1»); d, d.name, d.ordinal, d.title, d.limits, d.multiprocessors, d.clocks, d.context_address, d.forked, d.runs_on_gpu, d.current_stream; d._programs._arch, d._context.process == os.getpid(); driver.current, driver.below")
bare("gpu.open(«2|-1|'a'|True|1.5|10»)")
bare("driver.capability = «(7, 5)|(8, 9)|(9, 0)|(10, 0)|(12, 1)»; gpu.open(0).arch")
bare("have(«0|1|2|3»); gpu.open(«0|1|3»).name; gpu.open(0) is gpu.open(0), gpu.open(0) is gpu.open(1); tw.device('gpu:1'); find_gpu(16)")
bare("driver.current = 99; fail('«Device|set_current|cuCtxGetCurrent|cuMemGetInfo|cuMemPoolSetAttribute|cuCtxPushCurrent|create_stream»', «'NO_DEVICE'|'ILLEGAL_ADDRESS'|'DEVICE_UNAVAILABLE'|'it is broken'»); gpu.open(1); driver.current, driver.below; gpu.open(1); driver.current, driver.below")
bare("driver.pools[0] = SimpleNamespace(handle=5); d = gpu.open(0); d.memory()")
bare("d = gpu.open(0); patch.setattr(os, 'getpid', lambda: -1); d.forked, gpu.open(0) is d; d.memory(); d.synchronize(); d.empty(3, 'f4'); d.stream(); d.current_stream; gpu.open(0).memory()")
steps("d.memory(); driver.pool.attributes.used_mem_current = «0|499|500|700»; e.memory(); fail('cuMemGetInfo', '«UNKNOWN|ECC_UNCORRECTABLE»'); d.memory(); d.shares_memory_with(d), d.shares_memory_with(e)")
steps("x = d.array(counting(4)); y = e.array(counting(4)); find_gpu(x.ptr + «0|15») is d, find_gpu(y.ptr) is e; e.find_ordinal(x.ptr); find_gpu(16); have(1); find_gpu(y.ptr) is d")
steps("x = d.empty(«3|(2, 3)|(0, 3)|()|-1|(2, 1.5)», «'f4'|'i1'|'O'|'c16'»); [x, x.nbytes, x.size, x.ndim, x.contiguous, x.freed]; x.free(); x.freed, x, x.ptr")
steps("x = d.array(counting(«5|3, 4|2, 3, 4|0, 3», dtype=«'f2'|'i8'|ml_dtypes.bfloat16»)); x; x.numpy(); del x")
steps("x = d.array(«[1, 2]|5|counting(2, 3).T|counting(4, 6)[::2, ::-1]|OfHost()|np.zeros(2, '>f4')|'ab'|[object()]|None|memoryview(b'abc')»); x, x.numpy()")
steps("x = d.array(counting(5, 6)); y = x[«1:4, ::2|::-1|3|None, 2, 1:|..., 5|1:2, 3:4|0, 0»]; y, y.numpy(); y.copy(), y.copy().numpy(); y.T, y.T.numpy(), y.contiguous, y.nbytes; len(y); y.fill(y.numpy() * 2); x.numpy(); y.copy_from(y); y.free(); x; x[0]; x.numpy(); x.T")
steps("x = d.array(counting(6, 8, dtype='«f4|f8|i1»')); y = x[«1:4, 2:5|:, 3|::2|2:4|::-1, ::2|:, :», None]; z = y.copy(); z; z.copy_from(y); y.copy_from(z); z[::-1].copy_from(y); z.numpy(); x.numpy()")
steps("x = d.array(counting(2, 3)); h = np.zeros((4, 6), 'f4'); x.copy_to(h[«::2, ::2|:2, :3|2:, 3:»]); h; x.T.copy_to(h[:3, :2]); h; x[0].copy_to(h[0, :3]); h")
steps("x = d.array(counting(2, 3)); x.«copy_from|fill|copy_to»(«counting(3, 2)|counting(2, 3, dtype='i4')|[1, 2]|None|e.array(counting(2, 3))|d.array(counting(3))|d.array(counting(2, 3, dtype='i4'))|counting(2, 3)|np.broadcast_to(counting(3), (2, 3))»); x.numpy()")
steps("x = GpuArray(d.array(counting(2, 3))._memory, 4, (2, 2), (12, 4), np.dtype('f4'), True); x, x[0], x.T; x.«fill(counting(2, 2))|T.copy_from(x.T)|copy()|numpy()»; x.copy().read_only")
steps("x = d.array(counting(3)); «iter(x)|np.asarray(x)|x + 1|np.ones(3) + x|len(x[0])|x['a']|x[5]|x[0, 0]|float(x)|x == x»; repr(x), repr(x[0]), repr(x[None, 1:])")
steps("d.array(e.array(counting(3))); x = d.array(counting(3)); d.array(x) is x; y = d.array(x[1:]); y; del x; y.numpy(); del y")
steps("fail('allocate', «'OUT_OF_MEMORY'|'Failed to allocate'|'OUT_OF_MEMORY', 'OUT_OF_MEMORY'|'ILLEGAL_ADDRESS'|'OUT_OF_MEMORY', 'INVALID_VALUE'|'no idea'»); x = d.empty((5, 500), 'f4'); x; driver.mode")
steps("with d.stream() as s: fail('allocate', 'OUT_OF_MEMORY'«, 'OUT_OF_MEMORY'|», 'x y'); x = d.array(counting(500)); d._ledger.streams; x")
steps("x = d.pinned(«4|(2, 3)|(0, 2)|()|-1|'a'», «'f4'|'i1'|'O'»); x.shape, x.dtype, x.flags.writeable; y = x.copy() if x is None else x.reshape(-1)[:1]; del x; del y")
steps("fail('pin', «'OUT_OF_MEMORY'|'no room'»); x = d.pinned((50, 50), 'f4'); p = d.pinned(4, 'f4'); fail('close', 'UNKNOWN'); del p; driver.made[-1].name")
steps("x = d.empty((4, 4), 'f4'); p = d.pinned((4, 4), 'f4'); p[:] = counting(4, 4); s = d.stream(); driver.slow[s.handle] = «0|1|3»; with s: x.copy_from(p); with s: x.copy_to(«p|p.T|p[::2]»); len(d._ledger._pending); x.«copy_from(p.T)|copy_from(p[::-1])|fill(p)|copy_to(p)|copy_to(p.T)»; len(d._ledger._pending); d.synchronize(); len(d._ledger._pending); del p")
steps("x = d.array(counting(2, 2)); fail('«cuMemcpyHtoDAsync|cuMemcpyDtoHAsync|cuMemcpyDtoDAsync|cuMemcpy2DAsync»', 'ILLEGAL_ADDRESS'); x.fill(counting(2, 2)); x.numpy(); x[:, 0].copy(); x.copy(); x[:, 0].numpy()")
steps("x = d.array(counting(2, 2)); s = d.stream(); fail('«sync|wait|record|cuPointerGetAttribute|is_done|event sync»', 'LAUNCH_FAILED'); x.numpy(); s.wait(s.record()); s.synchronize(); s.record().synchronize(); s.record().done; d.synchronize()")
steps("x = d.array(counting(4, 2))[1:]; c = x.__dlpack__(stream=«None|1|2|0x70|-1|-2|0|True|'1'|1.5|np.int64(7)», max_version=«None|(1, 0)|(0, 9)»); word(x), x._memory.streams, x._memory._lent; y = read(c); y; del c; x.free(); del x; del y; d.synchronize()")
steps("x = d.array(counting(4, 2)); c = x«[::2]|.T|[::-1]|[:0]».__dlpack__(copy=«None|True|False», max_version=(1, 2)); y = read(c); y; del x; del y; del c")
steps("x = d.array(counting(4)); x.__dlpack__(dl_device=«(2, 0)|(2, 1)|(1, 0)|[2, 0]»); x.__dlpack_device__(); x.free(); x.__dlpack__(); x.__dlpack__(stream=-1); x.__cuda_array_interface__; native(x), word(x)")
steps("x = GpuArray(d.array(counting(4))._memory, 0, (2,), (8,), np.dtype('f4'), True); read(x.__dlpack__(max_version=(1, 0))); x.__dlpack__(); x.__cuda_array_interface__; y = d.array(Handed(x)); y; d.array(Described(x, data=(x._address, True))); y.copy_from(y)")
steps("x = d.array(counting(4, 6)); x«[::2, 1:]|[1:2]|[:, 2]|[:0]|».__cuda_array_interface__; word(x), x._memory._lent; with d.stream() as s: x[1:].__cuda_array_interface__; y = d.empty(2, 'f4'); del x; y.free(); y.free()")
steps("x = d.array(counting(4, dtype=ml_dtypes.bfloat16)); x.__cuda_array_interface__; hasattr(x, '__cuda_array_interface__'); read(x.__dlpack__()); d.array(Handed(x)); d.array(counting(3, dtype='S2')).__dlpack__(); d.array(Described(x))")
steps("x = d.array(counting(4, 6)); driver.told.clear(); with d.stream() as s: y = d.array(Handed(x[::2, 1:], «2|13|1|10|0», «None|1»)); y, y.numpy(); y[1:].fill(y[1:].numpy() + 1); x.numpy(); y.free(); del y; x._memory.streams")
steps("x = «d|e».array(counting(4, 6)); driver.told.clear(); y = d.array(Described(x[1:], «stream=1|stream=None|stream=2|stream=0x70|stream=0|mask=5|typestr='V2'|typestr='>f4'|shape=(0,), strides=None|shape=(2, 2), strides=(8, 8)|data=(16, False)|data=(None, False)»)); y; y._memory.streams; y.free(); y")
steps("x = d.array(counting(4)); s = d.stream(); with s: x.ptr; word(x), x._memory.streams; with d.stream(0x70): x.ptr; x._memory.streams; x.numpy(); with s: x.ptr; x.ptr; «del x|x.free()|x = None|y = x[1:]; x = None; y.numpy(); y.free()»")
steps("s = d.stream(); with s: x = d.empty(4, 'f4'); x, word(x); x.ptr; x._memory.streams; with s: x.copy_from(counting(4)); y = d.array(counting(4)); with s: y.copy_from(x); x.copy_from(y); y.lend_to(«0|1|2|0x70|s.handle»); y._memory.streams, y._memory._lent, word(y); y.lend_to(0x70); del y; del x")
steps("x = d.array(counting(4)); y = d.array(Handed(x)); s = d.stream(); with s: y.ptr; driver.slow = {s.handle: «0|2»}; del y; len(d._ledger._pending); x.free(); x.free(); d._ledger.sweep(); d._ledger.sweep(); len(d._ledger._pending); d.synchronize(); len(d._ledger._pending)")
steps("x, y, z = [d.array(counting(4)) for i in range(3)]; x.__cuda_array_interface__ and None; y.__dlpack__(stream=-1) and None; patch.setattr(pool_memory, 'are_others_capturing', lambda: «True|False»); x.free(); y.free(); len(d._handed_out); z.free(); patch.setattr(pool_memory, 'are_others_capturing', lambda: False); d.synchronize(); len(d._handed_out); fail('cuCtxSynchronize', 'LAUNCH_FAILED'); e.synchronize()")
steps("x = d.array(counting(4)); word(x); x«[1:]|[::-1]|.T|[None]|[::2, None]|[1:1]».ptr; native(x«|[1:]|[::2, None]|[1]»); x.native() is x.native(); native(d.empty(3, «'c8'|'?'|'u2'|'V3'»)); native(d.empty(2, ml_dtypes.float8_e5m2)); native(e.empty(2, 'i4'))")
steps("x = GpuArray(d.array(counting(4))._memory, «0|4», (3,), («5|4|2|-4»,), np.dtype('«f4|f2|i1»'), «True|False»); native(x); x.contiguous, x.nbytes")
steps("x = d.array(counting(4)); word(x); «x.free()|x.__dlpack__(stream=-1)|x.__dlpack__(stream=7)|x.__dlpack__(stream=1)|x._memory.lend()|x._memory.capture()|x.lend_to(1)|x.lend_to(0)|x.lend_to(2)|x.copy()|x.numpy()»; word(x)")
steps("x, y, q = d.array(counting(4)), d.array(counting(4)), d.pinned(4, 'f4'); patch.setattr(d._context, 'process', -1); d.forked; x.free(); x.freed; del y; del q; len(pool_memory._left_behind); x.numpy(); x.ptr; d.memory(); d.empty(0, 'f4')")
steps("s, t = d.stream(), d.stream(); s, t, s == t, s == d.stream(s.handle), hash(s) == hash(d.stream(s.handle)), s == 5, s == e.stream(s.handle); d.stream(s) is s; e.stream(s); d.stream(«0|1|2|0x70|True|'7'|7.0|-1|SimpleNamespace(cuda_stream=0x80)|SimpleNamespace(cuda_stream=None)|Streaming(0x90)|Streaming(3, 1)|Streaming(2, 1)|Streaming(1, 1)|Streaming(0x90, 1)»); [(one.raw, one.driver_handle, one.handle, one.__cuda_stream__()) for one in (s, d.stream(0), d.stream(2))]")
steps("gpu.streams_entered_address() == ctypes.addressof(streams.streams_entered); s, t = d.stream(), e.stream(); with s, t: (d.current_stream, e.current_stream, streams.streams_entered.value, thread(lambda: (d.current_stream, streams.streams_entered.value)), driver.tell(repr((d.current_stream, e.current_stream, streams.streams_entered.value)))); with s: raises(KeyError()); d.current_stream, e.current_stream, streams.streams_entered.value; thread(lambda: d.empty(3, 'f4'))")
steps("s, t = d.stream(), e.stream(); s.wait(t); s.wait(t.record()); s.wait(«5|None|'s'|d»); t.wait(s.record()); s.record().done; a = s.record(); b = s.record(); b.elapsed_ms(a), a.elapsed_ms(b); b.elapsed_ms(«t.record()|s|None|5»); s.mark().name; a.synchronize(); a.device is d")
steps("s = d.stream(); driver.slow[s.handle] = «0|1|4|40»; s.synchronize(«timeout=None|timeout=10|timeout=1e-4|timeout=0|timeout=-1|1»); s.record().synchronize(«timeout=0.01|2»); s.record().synchronize(); [s.record().done for i in range(2)]")
steps("s, t = d.stream(), d.stream(0x70); with s: go(d, 'none'); go(d, 'none', stream=«s.handle|0x80»); d._ledger.record_launch(t.handle, t, 'another'); d._ledger.streams; driver.slow = {s.handle: «0|3|500», 0x70: 2}; d.synchronize(timeout=«5|0.001|-1»); d._ledger.running(); d.synchronize(); d._ledger.running(), d._ledger.streams")
steps("d.time(lambda: next(driver.clock), «1|3|0|-1|1.5»); with d.stream() as s: d.time(s.record, repeat=2); len(d.time(lambda: None)); e.time(lambda: raises(KeyError('x')))")
steps("with d.stream() as s: let = d.order_streams(«[0x70, None, 0]|[None, 0x70]|[0x70]|[0, 2, 0x80]»); let(); d.order_streams([])")
steps("driver.captured = {0x70}; d.is_capturing(«0x70|0x80|0|1|None»); driver.calls['cuStreamIsCapturing'] = lambda raw: (906, REAL.CUstreamCaptureStatus(0), 0); d.is_capturing(0x80)")
steps("fail('cuCtxSynchronize', '«LAUNCH_FAILED|ILLEGAL_ADDRESS|UNKNOWN|ASSERT|LAUNCH_TIMEOUT»'); d.synchronize(); go(d, 'none'); go(d, 'one', None); fail('cuCtxSynchronize', 'ILLEGAL_ADDRESS'); d.synchronize(); fail('sync', 'ILLEGAL_ADDRESS'); d.current_stream.synchronize(); d.current_stream.synchronize(); d._ledger.running()")
steps("x, p = d.array(counting(4)), d.pinned(4, 'f4'); g = d.capture(); g.launch(); g.upload(); with g: (go(d, 'one', x), x.copy_from(p), x.copy_to(p), d.empty(3, 'i1'), x.copy()); len(g._kept), len(g._host), word(x); d._capturing, d.current_stream, streams.streams_entered.value, d._ledger.running(); del p; g.upload(); g.launch(); d._ledger.running(); with d.stream() as s: g.launch(); x._memory.streams; d._ledger.streams; g.__enter__(); x.free(); g.launch(); del g")
steps("x, y, s = d.array(counting(4)), d.array(counting(4)), d.stream(); with s: y.ptr; with d.capture() as g: «x.numpy()|x.fill(counting(4))|x.copy_to(counting(4).T)|d.synchronize()|d.synchronize(1)|d.current_stream.synchronize()|s.record().synchronize()|s.record().done|d.time(lambda: None)|x.__dlpack__()|x.__cuda_array_interface__|d.array(Handed(x))|d.array(Described(x))|d.array(x)|d.array([1])|go(d, 'none', timeout=1)|go(d, 'one', counting(3))|d.capture().__enter__()|g.__enter__()|g.launch()|g.upload()|y.copy_from(x)|y.copy_from(y)|y.ptr|y.free()|s.wait(s)|raises(KeyError('x'))|raises(CoreError('CUDA_ERROR_UNKNOWN: x'))|e.synchronize()|thread(lambda: d.synchronize())|y.lend_to(0x70)|d.find_ordinal(x.ptr)»; d._capturing, d.current_stream, streams.streams_entered.value, len(g._kept), len(g._host); g.launch(); x._memory.streams, y._memory.streams")
steps("x = d.array(counting(4)); fail('«create_graph_builder|begin_building|end_building|complete|close|launch|upload|create_stream»', 'STREAM_CAPTURE_«INVALIDATED|ISOLATION|UNSUPPORTED»'); g = d.capture(); with g: go(d, 'one', x); d._capturing, d.current_stream, streams.streams_entered.value; g.upload(); g.launch(); with g: go(d, 'one', x); g.launch(); g.launch()")
steps("x, y = d.array(counting(4)), d.array(counting(4)); x.__dlpack__(stream=-1) and None; with d.capture() as g: (x.free(), driver.tell(str(len(d._handed_out)))); y.free(); with d.capture() as h: (fail('allocate', 'OUT_OF_MEMORY'), d.empty(5, 'f4')); d._capturing")
steps("x = d.array(counting(4)); go(d, «'one', x|'two', x, 7|'none'|'long', bytes(range(70)), x[1:]|'two', counting(3), 5|'two', counting(6)[::2], -1|'one', None|'one', e.array(counting(3))|'one', Handed(x)|'one', Handed(e.array(counting(3)))|'one', Described(x[2:])|'one', Described(x, stream=0x70)|'one', OfHost()|'one', [1.0]|'one', 5|'two', x, x|'two', x|'one', x.__class__|'one', d.array(counting(3, dtype='i4'))|'one', GpuArray(x._memory, 0, (4,), (4,), x.dtype, True)|'none', 1|'three'»); x.numpy(); d._ledger.running()")
steps("x = d.array(counting(4)); a = counting(4); a.flags.writeable = False; go(d, 'one', a); go(d, 'two', «a[1:]|np.broadcast_to(a, (2, 4))|a.astype('>f4')|np.ma.masked_array(a)|a.copy()», 3); driver.buffers[-1].name")
steps("h = counting(4); p = pack('k', (X,) * 2, [h«, h|[:2], h[2:]|, h[1:]|, h.copy()|, h[::-1]», ][:2], d, copy=«True|False»); [driver.place(int.from_bytes(one, 'little')) for one in p.parts]; p.copy_in(); p.keep[0].fill(p.keep[0].numpy() + 5); p.copy_back(); h; del p")
steps("h = counting(4); h.flags.writeable = False; p = pack('k', (Parameter('x', 'u64', 8, 8),), [h], d); p.keep[0].fill(h + «0|1»); p.copy_back(); d.array(counting(2, 2)).T.copy_to(counting(2, 2).T)")
steps("x = d.array(counting(4)); go(d, 'two', x, 7, stream=«None|0|1|2|0x70», timeout=«None|5|0.5»); d._ledger.running(), d._ledger.streams, x._memory.streams, x._memory._lent; with d.stream() as s: go(d, 'two', x, 8, timeout=«None|2»); d._ledger.running(); del x")
steps("x, y = d.array(counting(4)), e.array(counting(4)); b = x.ptr.to_bytes(8, 'little'); with d.stream() as s: d.run(binary(), 'one', shape(1, 32, «x|x, y|5, x[1:]|y|5», ), [b], stream=«None|0x70|0|1»); x._memory.streams, x._memory._lent; d.run(binary(), 'one', shape(), [b]); len(d.load(binary(), 'one')._blocks); x.free(); d.run(binary(), 'one', shape(1, 32, x), [b])")
steps("driver.slow[1] = 900; go(d, 'none', timeout=«0.01|1e-3|20»); go(d, 'none', at=((2, 3, 4), (8, 4, 2)), how={'shared': 70000, 'cluster': (2, 3, 1)}); d.current_stream.synchronize(0.5); d._ledger.has_launch(1), d._ledger.has_launch(2)")
steps("go(d, 'none', at=(«4|1|(2, 2, 2)|(4, 70000, 1)|2**31», «32|640|641|1024|1025|(8, 8, 8)|(1, 1, 65)»)); go(d, 'none', how={'shared': «0|49152|49153|231424|231425»})")
steps("go(d, 'none', at=(144, 32), how={'cluster': «(1, 1, 1)|(8, 1, 1)|(16, 1, 1)|(4, 1, 1)|(3, 1, 1)|(32, 1, 1)|(9, 1, 1)», 'programmatic': «True|False»}); go(d, 'none', at=(16, 32), how={'cluster': (16, 1, 1)}); go(d, 'none', at=(16, 32), how={'cluster': (16, 1, 1)})")
steps("go(d, 'none', how={'shared': 50000}); go(d, 'none', how={'shared': 50000}); go(d, 'none', how={'shared': 49000}); go(d, 'none', how={'shared': 60000}); fail('cuFuncSetAttribute', 'INVALID_VALUE', 'INVALID_VALUE'); go(d, 'none', how={'shared': 60_001}); go(d, 'none', how={'cluster': (16, 1, 1)}, at=(16, 1)); go(d, 'none', how={'cluster': (16, 1, 1)}, at=(16, 1)); go(e, 'none', how={'shared': 50000})")
steps("«d|e».name; go(«d|e», 'none', at=(«20|21|22|(7, 3, 1)|(11, 2, 1)», «32|(64, 2, 1)»), how={'cooperative': True, 'shared': «0|512|1512»})")
steps("fail('«cuOccupancyMaxActiveBlocksPerMultiprocessor|cuCtxGetDevice|cuDeviceGetAttribute|cuFuncGetAttribute|cuFuncLoad|cuKernelGetFunction|get_kernel|load|cuCtxPushCurrent»', 'INVALID_VALUE'); go(d, 'none', how={'cooperative': True}); go(d, 'none', how={'cooperative': True}); d._ledger.running()")
steps("fail('cuLaunchKernelEx', '«LAUNCH_OUT_OF_RESOURCES|COOPERATIVE_LAUNCH_TOO_LARGE|INVALID_CLUSTER_SIZE|ILLEGAL_ADDRESS|INVALID_VALUE»'); go(d, 'two', d.array(counting(2)), 1, at=((2, 1, 1), (32, 2, 1)), how={'shared': 99, 'cluster': (2, 1, 1)}); d._ledger.running(); len(d.load(binary(), 'two')._blocks); go(d, 'none'); d._ledger.running()")
steps("x, f = d.array(counting(4)), d.load(binary(), 'two'); [f.label, f.launching, f.entry, f.sizes, f.threads, f.registers, f.static, f._dynamic, f.device_name, f.address]; f is d.load(binary(), 'two'), f is e.load(binary(), 'two'); a = f.take_block([b'12345678', b'1234']); b = f.take_block([b'12345678', b'4321']); a.offsets, a.address % 64, a.pointers != b.pointers, ctypes.string_at(b.address + 64, 4); f.give_back(a); f.take_block([b'abcdefgh', b'1234']) is a; ctypes.string_at(a.address, 8); f.take_block(«[b'12345678']|[b'1234', b'12345678']|[]|[b'12345678', b'12345']»)")
steps("f = d.load(binary(), 'two'); x = d.array(counting(4)); b = f.take_block([x.ptr.to_bytes(8, 'little'), b'1234']); d.launch_block(f, shape(2, 64, shared=5), b.pointers«|, 0|, 1|, 0x70|, None»); d._ledger.running(), d._ledger.streams; with d.capture() as g: d.launch_block(f, shape(2), b.pointers, «None|0x70»); d._ledger.running(); d.load_for(binary(), 'two', shape(1, «32|1024|640», shared=«0|50000»))")
steps("patch.setattr(launches, '_CONFIGURATIONS', 2); f = d.load(binary(), 'none'); c = [f.configure(shape(n), d.limits, h) for n, h in ((1, 0), (1, 0), (2, 0), (3, 0), (1, 0), (1, 1))]; [c[0] is one for one in c], len(f._configurations), c[0].shape")
steps("go(d, 'none', code=binary(«b'one'|None|b'two', ''|None, '', PTX|None, '', 'other'», arch='«sm_80|sm_90a»')); go(d, 'none', code=binary(key='k')); go(d, 'two', None, 1, code=binary(b'one', '')); d.load(binary(), 'thre'); len(driver.codes)")
steps("driver.log = «b''|b'line 3:\\\\n bad\\\\0rest'|b'fine'»; fail('«cuFuncLoad|get_kernel|load|cuKernelGetFunction»', «'NO_BINARY_FOR_GPU'|'INVALID_PTX'|'it broke'»); d.load(binary(«b'code'|None», ptx=«'some PTX'|'some PTX\\\\0\\\\0'»), 'none'); d.load(binary(None), 'one').entry; len(driver.codes)")
steps("x = d.array(counting(2, 3)); driver.variables = {b'v': (SUCCESS, x._address, 24)}; driver.managed = {b'w': (SUCCESS, x._address + 8, 8)}; v = d.variable(binary(), '«v|w|none»', «(2, 3)|(2,)|(6,)|()|(5, 5, 50)», «'f4'|'f8'|'i1'|'q q'»); v, v.numpy(); v.free(); d.variable(binary(), 'v', [24], 'u1'); go(d, 'none'); [d.variable(binary(one, ''), 'v', [24], 'u1').shape for one in (b'1', b'2', b'1')]; len(driver.codes)")
steps("fail('cuLibraryGetGlobal', '«NOT_FOUND|INVALID_PTX|ILLEGAL_ADDRESS»'); driver.log = b'bad'; driver.managed = {b'v': (SUCCESS, 64, 4)}; d.variable(binary(«None|b'x'»), 'v', (1,), 'f4').shape; d.variable(binary(), 'v', (1,), 'f4').shape")
steps("x = d.array(counting(4)); r = ready(d, 'two', x, 7«|, cluster=(2, 1, 1)|, shared=60000»); go(e, 'none'); r(); driver.current = 10; r(); r(); d._ledger.running(); with d.stream() as s: r(); r(); d._ledger.running(); driver.current = 11; r(); driver.current = 10; x2 = x; d.synchronize(); r(); d._ledger.running(); x.free(); r()")
steps("x, y = d.array(counting(4)), d.array(counting(4)); r, t = ready(d, 'one', x), ready(d, 'none'); driver.current = 10; word(x); r(); «x.__cuda_array_interface__ and None|x.lend_to(0x70)|x.lend_to(1)|fail('ask', 1)|fail('cuLaunchKernelEx', 'ILLEGAL_ADDRESS')|fail('cuLaunchKernelEx', 'ILLEGAL_ADDRESS', 'LAUNCH_FAILED')|patch.setattr(os, 'getpid', lambda: 1)|d.synchronize()»; r(); t(); d._ledger.running(), d._ledger.streams; with d.capture() as g: (r(), t()); len(g._kept); driver.current = 0")
steps("ready(d, 'two', «x := d.array(counting(4))|counting(3)|None», 1, at=(1, «32|2000»)) and None; ready(d, 'one', 5)()")
steps("r = ready(d, 'one', d.array(counting(4))); r(); driver.entries.clear(); e.native_entries(); r(); del r")
steps("[driver.place(0)] + [{v: k for k, v in driver.entries.items()}.get(one) for one in (lambda n: (n.launch_kernel_ex, n.tensor_map_encode_tiled, n.ctx_get_current, n.ctx_push_current, n.ctx_pop_current))(d.native_entries())]; d.native_entries() is d.native_entries(); driver.entries.pop('cuTensorMapEncodeTiled'); e.native_entries().tensor_map_encode_tiled; fail('cuGetProcAddress', 'NOT_FOUND'); words.find_native_entries().launch_kernel_ex")
steps("c = d._context.quick_check(driver.entries['cuCtxGetCurrent']); [c(), setattr(driver, 'current', 10), c(), fail('ask', 1), c(), c(), setattr(driver, 'current', 11), c(), setattr(driver, 'current', 0)]")
steps("x = d.array(counting(64, 64, dtype='f2')); m = tw.TensorMap(x«|[8:]|[:, 8:]», (8, 16), swizzle=«None|32|128», fill='«zero|nan»', l2_promotion=«None|64|128|256»); m.encode(d); m.encode(e); go(d, 'map', m); go(e, 'map', m); x._memory.streams")
steps("x = d.array(counting(4, 8, 6, 16, 8, dtype='f2')); tw.TensorMap(x, (1, 1, 2, 8), interleave=16).encode(d); tw.TensorMap(4096, (8,), shape=(64,), dtype='float32', element_strides=(«1|2»,)).encode(d); tw.TensorMap.im2col(d.array(counting(8, 8, 8, 64, dtype=ml_dtypes.bfloat16)), lower=(-1, 2), upper=(-3, 4), channels=16, pixels=32).encode(d); fail('cuTensorMapEncode«Tiled|Im2col»', 'INVALID_VALUE'); tw.TensorMap(counting(64, 64), (8, 8)).encode(d, 4096)")
steps("x = «d|e».array(counting(64, 64, dtype='f2')); m = tw.TensorMap(«Handed(x)|Described(x)|Described(x[::2])|Described(x, data=(16, False))|Described(x, shape=(0, 64))», (8, 16)); m, m.array, m.array.device.name, m.described")
bare("driver.capability = «(8, 9)|(9, 0)»; d = gpu.open(1); tw.TensorMap(4096, (8, 8), shape=(64, 64), dtype='float16').encode(d)")
steps("k = tw.Kernel.from_ptx(PTX, 'two'); x = d.array(counting(4)); k(2, 32, [x, 5], device=d); k((2, 3), (8, 4), [counting(4), 7], device='gpu:«0|1»', «shared=100|timeout=5|cooperative=True»); k(2, 641, [x, 1], device=d); b = k.bind(2, 32, [x, 6], device=d); b(); b(); k(1, 32, [e.array(counting(3)), 1], device=d)")
steps("a = tuple(interop.view(n, d.array(counting(4))) for n in 'ab'); driver.told.clear(); start_on_gpu(lambda given, on: driver.tell(f'{given} on {on}'), {'a': 5}, (*a, interop.view('c', counting(4))), d, («None|0|0x70»,))")
steps("error_of(d, 'resting', «CoreError('CUDA_ERROR_OUT_OF_MEMORY: what')|CoreError('CUDA_ERROR_NO_SUCH: what\\\\n it')|CoreError('it\\\\n broke')|CoreError()|RuntimeError('x')|ValueError('x')|KeyError('x')|DeviceError('as it is')|ArgumentError('x', 'is y')|CoreError('CUDA_ERROR_ILLEGAL_ADDRESS')|OSError('CUDA_ERROR_ASSERT: x')»); driver.current; go(d, 'none'); error_of(d, 'running kernel none', CoreError('CUDA_ERROR_ILLEGAL_ADDRESS')); error_of(d, d._ledger.running(), CoreError('CUDA_ERROR_LAUNCH_FAILED'))")
steps("[words.explain(getattr(REAL.CUresult, name), 'doing it') for name in sorted({*words.ADVICE, *words.LOST, 'CUDA_ERROR_INVALID_VALUE'})]")
steps("words.check((0,«|7,|7, 8,»), 'x'); words.check((REAL.CUresult.CUDA_ERROR_NO_DEVICE, 5), 'asking'); words.explain(REAL.CUresult.CUDA_ERROR_UNKNOWN, 'x', '«|more»'); fail('cuGetErrorString', 'UNKNOWN'); words._sentence('CUDA_ERROR_ASSERT', '«|words»', 'x', 'y'); patch.setattr(words, 'driver', lambda: raises(OSError())); words.explain(REAL.CUresult.CUDA_ERROR_ASSERT, 'x')")
steps("driver.calls['cuGetErrorString'] = lambda status: («0|1», «b'a\\\\xff'|None|b''»); words.explain(REAL.CUresult.CUDA_ERROR_ASSERT, 'x')")
steps("driver.current = 99; with d._scope('a'): (driver.tell('in'), d.memory(), e.memory()); driver.current, driver.below; fail('cuCtx«Get|Push»Current', 'NOT_INITIALIZED'); d.memory(); driver.current, driver.below; with words.beside_captures(): driver.tell(driver.mode); driver.mode; fail('cuThreadExchangeStreamCaptureMode', 'INVALID_VALUE'); d.empty(2, 'i1')")
probed(«None|''|' '|'-1'|'7'», cuInit=«'CUDA_ERROR_NO_DEVICE'|'CUDA_ERROR_STUB_LIBRARY'|'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH'|(0,)», cuDeviceGetCount=(0, «0|2»))
probed(cuDriverGetVersion=(0, «12_040|13_000|11_080|13_010|12_999»)), probed(cuDriverGetVersion=«None|'CUDA_ERROR_UNKNOWN'»)
probed(cuInit=«RuntimeError('it is\\n broken')|OSError('no such')|OSError()|DynamicLibNotFoundError('gone')»), probed(«core=None|missing=ImportError('no module')|missing=OSError('x')|cuDeviceGetCount=None»)
loaded(«Device=1|other=2»)
capturing(«|torch=torch(True, True)|torch=torch(True, False)|torch=torch(False, True)|cupy=cupy(True)|cupy=cupy(False)|torch=torch(True, False), cupy=cupy(True)|torch=None, cupy=None»)
[Ledger('g', lambda doing: contextlib.nullcontext()).running(), launch_of(shape_of(shape(2, 3, 5, shared=4, cluster=(1, 1, 1), cooperative=True, programmatic=«True|False»)))]
"""

PTX = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry two(.param .u64 x, .param .u32 n) { ret; }\n"
A = np.arange(3, dtype=np.float32)


# ── steps ──


def bare(text: str) -> list[str]:
    """What steps answer, and what they tell a driver of which no GPU was opened."""
    with pytest.MonkeyPatch.context() as patch, _without_collector():
        patch.setattr(pretended_gpu, "PretendedDriver", Driver)
        made: Any = pretend(patch)
        for module in (launches, driver_tensor_map):
            patch.setattr(module, "driver", lambda: made)
        patch.setattr(launches, "core", lambda: made)
        patch.setattr(pool_memory, "_left_behind", [])
        clock = SimpleNamespace(monotonic=lambda: made.now, sleep=lambda seconds: _sleep(made, seconds))
        for timed in (streams, gpu_device):
            patch.setattr(timed, "time", clock)
        names: dict[str, Any] = {**globals(), "driver": made, "patch": patch, "_scope": {}}
        names["fail"] = lambda name, *texts: made.failing.__setitem__(name, list(texts))
        names["have"] = lambda count: patch.setattr(
            gpu_device, "probe", lambda: (count, "none is there" * (not count))
        )
        names["read"] = lambda given: exchange.from_capsule(given, None)
        answers = [one for step in text.split("; ") if (one := _step(made, names, step))]
        opened = list(gpu_device._opened.values())
        names.clear()
        answers.append(f"end{_told(made)} {[one.name for one in made.buffers]} {made.current}")
        for device in opened:  # what is left is nobody's
            device._context.process = -1
        return answers


def steps(text: str) -> list[str]:
    """The same once two GPUs are open, ``d`` and ``e``, and three binaries are there."""
    return bare(f"d, e, driver.told[:] = gpu.open(0), gpu.open(1), []; {text}")


def _step(driver: Driver, names: dict[str, Any], step: str) -> str:
    driver.naps.clear()
    answer = ""
    try:
        try:
            code = compile(step, "step", "eval")
        except SyntaxError:
            exec(compile(step, "step", "exec"), names)
        else:
            found = eval(code, names)
            answer = "" if found is None else _shown(driver, found)
            del found
    except Exception as error:
        answer = describe_refusal(error)
        traceback.clear_frames(error.__traceback__)
    names.pop("__builtins__", None)
    return answer + _told(driver)


def _told(driver: Driver) -> str:
    naps = (
        f" napped {len(driver.naps)} for {sum(driver.naps):.6g}, {max(driver.naps):.6g}"
        if driver.naps
        else ""
    )
    told = driver.taken_back()
    return naps + f" ‹{', '.join(told)}›" * bool(told)


def _sleep(driver: Driver, seconds: float) -> None:
    driver.naps.append(seconds)
    driver.now += seconds


def describe_refusal(error: BaseException) -> str:
    """An error; its words if they are ours."""
    notes = "".join(f" [{note}]" for note in getattr(error, "__notes__", []))
    frames = traceback.extract_tb(error.__traceback__)
    where, line = frames[-1].filename.split(os.sep), frames[-1].line or ""
    ours = isinstance(error, CoreError) or ("tilewise" in where and line.startswith("raise"))
    said = show(error) if isinstance(error, TilewiseError) else f"{type(error).__name__}{f': {error}' * ours}"
    return re.sub(r" at 0x[0-9a-f]+", "", said) + notes


def _shown(driver: Driver, value: Any) -> str:
    match value:
        case GpuArray():
            memory = value._memory
            place = driver.place(memory.ptr + value._offset)
            return f"{value!r} {value.shape} by {value.strides} at {place}{' read-only' * value.read_only} of {memory.streams}"
        case exchange.Foreign():
            return f"{value[1:5]} at {driver.place(value.ptr)} {value[6:]}"
        case bool() | np.ndarray() | str() | bytes():
            return show(value)
        case int() if value > 1 << 20:
            return driver.place(value)
        case dict():
            return str({key: _shown(driver, one) for key, one in value.items()})
        case tuple() | list():
            return f"({', '.join(_shown(driver, one) for one in value)})"
    return show(value)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """So that things are let go of where the last reference to them is."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


# ── what steps use ──


def counting(*shape: int, dtype: Any = "float32") -> Any:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


class Handed:
    """Another library's array, by DLPack."""

    def __init__(self, x: Any, kind: int = 2, ordinal: int | None = None) -> None:
        self.x, self.place = x, (kind, x.device.ordinal if ordinal is None else ordinal)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, **how: Any) -> Any:
        return self.x.__dlpack__(**how)


class Described:
    """Another library's array, by the CUDA array interface."""

    def __init__(self, x: Any, **other: Any) -> None:
        self.x = x
        self.__cuda_array_interface__ = {
            "shape": x.shape, "typestr": x.dtype.str, "strides": x.strides, "data": (x._address, False), **other,
        }  # fmt: skip


class OfHost:
    """An array of the host that speaks DLPack too."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **how: Any) -> Any:
        return counting(3).__dlpack__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return counting(3)


class Streaming:
    """Another library's stream, of a GPU."""

    def __init__(self, handle: int, ordinal: int = 0) -> None:
        self.handle, self.ordinal = handle, ordinal

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def binary(
    cubin: bytes | None = b"machine code", key: str = "k", ptx: str = "some PTX", arch: str = "sm_90a"
) -> Binary:
    return Binary(arch, ptx, cubin, {name: Entry(name, one) for name, one in KERNELS.items()}, key=key)


def shape(grid: Any = (4, 1, 1), block: Any = (32, 1, 1), *args: Any, **how: Any) -> Launch:
    grid, block = ((one, 1, 1) if isinstance(one, int) else one for one in (grid, block))
    return Launch(grid, block, args, **how)


def go(
    device: Any, entry: str, *args: Any, code: Any = None, at: Any = (4, 32), how: Any = (), **options: Any
) -> Any:
    """Launch a kernel with arguments of any kind, as a call of it does; how many arrays are kept and copied for it."""
    packed = pack(entry, KERNELS[entry], args, device)
    launch = shape(*at, *packed.keep, **dict(how))
    device.run(code or binary(), entry, launch, packed.parts, **options)
    packed.copy_back()
    return [len(one) for one in (packed.keep, packed.copies, packed.back, packed.read_only)]


def ready(device: Any, entry: str, *args: Any, at: Any = (4, 32), **how: Any) -> Any:
    """The same launch made ready."""
    packed = pack(entry, KERNELS[entry], args, device)
    return device.prepare(binary(), entry, shape(*at, **how), packed.parts, packed.keep)


def native(x: Any) -> Any:
    """What compiled calls read of an array, and its memory's word."""
    described = x.native()
    if not described:
        return "none"
    at, *rest = struct.unpack_from("<QQiiiBBHQ", described)
    word = ctypes.c_uint64.from_address(at).value
    return word, at == x._memory.state_address, *rest, np.frombuffer(described[48:], "i8").tolist()


def word(x: Any) -> int:
    return int(x._memory.state.value)


def thread(function: Callable[[], Any]) -> Any:
    """What a function answers in another thread."""
    found: list[Any] = []
    one = threading.Thread(target=lambda: found.append(function()))
    one.start()
    one.join()
    return found


def raises(error: Exception) -> Any:
    raise error


def error_of(device: Any, doing: str, error: Exception) -> Any:
    with device._scope(doing):
        raise error


def probed(visible: str | None = None, **calls: Any) -> Any:
    """What is found of a driver that answers so, twice, and whether it counts as started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_started_in", None)
        patch.setattr(words, "_without_driver", [])
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found: dict[str, Any] = {"cuda.bindings": SimpleNamespace(__version__="13.2.0")}
        has_core = calls.pop("core", object())
        asked: list[Any] = []

        def call(name: str, answer: Any) -> Callable[..., Any]:
            def made(*given: Any) -> Any:
                asked.append((name, *given))
                return (
                    raises(answer)
                    if isinstance(answer, Exception)
                    else ((getattr(REAL.CUresult, answer),) if isinstance(answer, str) else answer)
                )

            return made

        answers = {"cuInit": (0,), "cuDriverGetVersion": (0, 13_000), "cuDeviceGetCount": (0, 2)} | calls
        made = SimpleNamespace(**{name: call(name, one) for name, one in answers.items() if one is not None})
        missing = calls.get("missing")
        patch.setattr(words, "driver", lambda: raises(missing) if missing else made)
        imports = SimpleNamespace(
            import_module=found.__getitem__, util=SimpleNamespace(find_spec=lambda name: has_core)
        )
        patch.setattr(words, "importlib", imports)
        return (
            words.probe(),
            words.probe(),
            gpu.count(),
            gpu.why_not(),
            words._started_in == os.getpid(),
            asked,
        )


class DynamicLibNotFoundError(RuntimeError):
    """As the bindings call it."""


def loaded(**names: Any) -> Any:
    """cuda.core, where it has these names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            words,
            "importlib",
            SimpleNamespace(import_module=lambda name: SimpleNamespace(**names, name=name)),
        )
        return [words.core.__wrapped__().name, words.driver.__wrapped__().name]


def capturing(**modules: Any) -> bool:
    """Whether other libraries capture, where they are these."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("torch", "cupy"):
            patch.setitem(sys.modules, name, modules.get(name, SimpleNamespace()))
        return exchange.are_others_capturing()


def torch(*says: bool) -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: says[0], is_current_stream_capturing=lambda: says[1])
    )


def cupy(says: bool) -> Any:
    stream = SimpleNamespace(is_capturing=lambda: says)
    return SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))
