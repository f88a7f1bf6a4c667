"""The instructions, family by family: tables from opcode to lowering."""
