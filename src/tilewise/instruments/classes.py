"""Where ncu counts a machine instruction: its class, its category, and the pipes that run it.

Told from what an H200 counted of tiny kernels that have one kind of instruction each, under Nsight Compute; see
``tests/golden/hardware/instructions.json.gz``. Classes and categories are the profiler's own, by opcode, and
taken for other GPUs too. Pipes are the hardware's: they are those of compute capability 9.0 alone.
"""

from __future__ import annotations

import re

from tilewise.toolchain.lines import MachineInstruction

__all__ = ["CLASSES", "PIPED", "PIPES", "category_of", "class_of", "pipes_of"]


def _by_opcode(table: dict[str, str]) -> dict[str, str]:
    return {opcode: name for name, opcodes in table.items() for opcode in opcodes.split()}


# smsp__sass_thread_inst_executed_op_*_pred_on: each opcode is of one class.
_CLASS = _by_opcode(
    {
        "bit": "BGMMA BMMA BMSK BREV P2R PLOP3 PRMT SEL",
        "control": "BRA BSSY BSYNC CALL CGAERRBAR ERRBAR EXIT NANOSLEEP RET UCGABAR_ARV UCGABAR_WAIT "
        "WARPSYNC",
        "conversion": "F2F F2FP F2I FRND I2F I2FP",
        "fp16": "HADD2 HFMA2 HGMMA HMMA HMUL2 HSET2 HSETP2 VHMNMX",
        "fp32": "FADD FCHK FFMA FMNMX FMUL FSEL FSET FSETP MUFU",
        "fp64": "DADD DFMA DMMA DMUL DSETP",
        "fp8": "QGMMA",
        "integer": "FLO I2I I2IP IABS IADD3 IDP IGMMA IMAD IMMA ISETP LEA LOP3 POPC SGXT SHF VIADD VIADDMNMX VIMNMX "
        "VIMNMX3",
        "inter_thread_communication": "ELECT MATCH REDUX SHFL VOTE VOTEU WARPGROUP",
        "memory": "ATOM ATOMG ATOMS CCTL LD LDC LDG LDGDEPBAR LDGSTS LDL LDS LDSM MEMBAR QSPC REDAS REDG ST STAS "
        "STG STL STS STSM UBLKCP UBLKPF UBLKRED UTMACCTL UTMACMDFLUSH UTMALDG UTMAREDG UTMASTG",
        "misc": "ACQBULK B2R BAR BMOV CS2R DEPBAR FENCE MOV MOVM NOP PMTRIG PREEXIT R2UR S2R S2UR SYNCS "
        "USETMAXREG VABSDIFF VABSDIFF4",
        "uniform": "UFLO UIADD3 UIMAD UISETP ULDC ULEA ULOP3 UMOV UPOPC UPRMT USEL USHF",
    }
)
# Not among the measured ones; put beside their likes.
_CLASS_LIKE = _by_opcode(
    {
        "bit": "R2P",
        "control": "BREAK BRX BRXU JMP JMX JMXU KILL YIELD",
        "fp16": "HMNMX2",
        "fp32": "FSWZADD",
        "integer": "CLMAD IADD IMNMX ISCADD",
        "memory": "RED",
        "uniform": "LDCU UBMSK UBREV UP2UR UPLOP3 USGXT",
    }
)
CLASSES = tuple(sorted({*_CLASS.values()}))

# sass__inst_executed_per_opcode_category.
_CATEGORY = _by_opcode(
    {
        "Control": "ACQBULK BMOV BRA BREAK BRX BRXU BSSY BSYNC CALL CGAERRBAR ELECT EXIT JMP JMX JMXU KILL NANOSLEEP "
        "PREEXIT RET WARPSYNC YIELD",
        "Conversion": "F2F F2FP F2I FRND I2F I2FP I2I I2IP",
        "Floating Point": "DADD DFMA DMMA DMUL DSETP FADD FCHK FFMA FMNMX FMUL FSEL FSET FSETP FSWZADD HADD2 HFMA2 "
        "HMMA HMNMX2 HMUL2 HSET2 HSETP2 MUFU",
        "Integer": "BMMA BMSK BREV FLO IABS IADD IADD3 IDP IMAD IMMA IMNMX ISCADD ISETP LEA LOP3 POPC SHF VABSDIFF "
        "VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3",
        "Load/Store": "ATOM ATOMG ATOMS CCTL ERRBAR FENCE LD LDC LDG LDGDEPBAR LDGSTS LDL LDS LDSM MATCH MEMBAR QSPC "
        "RED REDAS REDG ST STAS STG STL STS STSM SYNCS",
        "Miscellaneous": "B2R BAR CS2R DEPBAR NOP PMTRIG S2R VOTE",
        "Movement": "MOV MOVM PRMT SEL SGXT SHFL",
        "Predicate": "P2R PLOP3 R2P",
        "Tensor Memory Access": "UBLKCP UBLKPF UBLKRED UTMACCTL UTMACMDFLUSH UTMALDG UTMAREDG UTMASTG",
        "Uniform Datapath": "LDCU R2UR REDUX S2UR UBMSK UBREV UCGABAR_ARV UCGABAR_WAIT UFLO UIADD3 UIMAD UISETP "
        "ULDC ULEA ULOP3 UMOV UP2UR UPLOP3 UPOPC UPRMT USEL USETMAXREG USGXT USHF VOTEU",
        "Warpgroup": "BGMMA HGMMA IGMMA QGMMA WARPGROUP",
    }
)

# smsp__inst_executed_pipe_*. What is in none is listed as such: else it would not be known to be in none.
_NONE = "none"
_PIPE = _by_opcode(
    {
        "adu": "B2R BAR CGAERRBAR LDC MATCH PREEXIT REDUX S2R S2UR SYNCS UCGABAR_ARV USETMAXREG",
        "alu": "BMSK CS2R ELECT F2FP FMNMX FSEL FSET FSETP HSET2 HSETP2 I2FP I2I I2IP IABS IADD3 ISETP LEA LOP3 "
        "MOV P2R PLOP3 PRMT R2UR SEL SGXT SHF VABSDIFF VABSDIFF4 VHMNMX VIADDMNMX VIMNMX VIMNMX3 VOTE",
        "cbu": "BMOV BREAK BSSY BSYNC CALL EXIT NANOSLEEP WARPSYNC",
        "cbu adu": "RET",
        "fma": "FADD FFMA FMUL IDP IMAD VIADD",
        "fma fma_type_fp16": "HADD2 HFMA2 HMUL2",
        "fp64": "DADD DFMA DMUL DSETP",
        "lsu": "ATOM ATOMG ATOMS CCTL FENCE LD LDG LDGDEPBAR LDGSTS LDL LDS LDSM MEMBAR MOVM QSPC REDAS REDG "
        "SHFL ST STAS STG STL STS STSM",
        "tensor tensor_op_dmma": "DMMA",
        "tensor tensor_op_hmma": "HMMA",
        "tensor tensor_op_hmma tensor_op_hmma_type_hfma2": "HFMA2.MMA",
        "tensor tensor_op_imma": "BMMA IMMA",
        "tensor tensor_op_hmma tensor_op_gmma": "HGMMA QGMMA",
        "tensor tensor_op_imma tensor_op_gmma": "BGMMA IGMMA",
        "tma": "UBLKCP UBLKPF UBLKRED UTMACCTL UTMACMDFLUSH UTMALDG UTMAREDG UTMASTG",
        "uniform": "UFLO UIADD3 UIMAD UISETP ULEA ULOP3 UPOPC UPRMT USEL USHF",
        "xu": "BREV F2F F2I FCHK FLO FRND I2F MUFU POPC",
        _NONE: "ACQBULK BRA DEPBAR ERRBAR NOP PMTRIG UCGABAR_WAIT ULDC UMOV VOTEU WARPGROUP",
    }
)
PIPED = (9, 0)  # the compute capability whose pipes these are
PIPES = tuple(sorted({pipe for names in _PIPE.values() for pipe in names.split()} - {_NONE} | {"ipa", "tex"}))

# What is a thread's own comes by another way than what is its block's.
_OF_A_THREAD = re.compile(r"SR_(TID\.[XYZ]|LANEID|VIRTID|[A-Z]+MASK)$")


def class_of(opcode: str) -> str | None:
    """The class of an opcode without its modifiers; None where it is not known."""
    return _CLASS.get(opcode) or _CLASS_LIKE.get(opcode)


def category_of(opcode: str) -> str | None:
    return _CATEGORY.get(opcode)


def pipes_of(instruction: MachineInstruction) -> tuple[str, ...] | None:
    """The pipes that count an instruction, on compute capability 9.0; None where that is not known."""
    opcode, family = instruction.opcode, instruction.family
    listed = _PIPE.get("HFMA2.MMA" if opcode.startswith("HFMA2.MMA") else family)
    if listed is None:
        return None
    pipes = () if listed == _NONE else tuple(listed.split())
    if family == "S2R" and _OF_A_THREAD.search(instruction.text):
        return ("lsu",)
    if family == "MEMBAR" and not opcode.endswith(".CTA"):
        return (*pipes, "tex")  # it waits for the textures' way too
    if family == "NANOSLEEP" and re.search(r"\bR\d+$", instruction.text):
        return (*pipes, "adu")  # for a time that a register has
    return pipes
