"""PTX texts that have everything that stands around instructions, right and wrong: heads, declarations, initial values,
constants, scopes, labels, calls. Each is a line; ``tests/ptx_readings.py`` keeps what is read of it.

«a¦b» stands for a or b, ``\\n`` begins a line, and ``\\0`` is a zero.
"""

from __future__ import annotations

import itertools

__all__ = ["BLOCKS", "BUILT", "FRAMES", "TEXTS", "list_expressions"]

_HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
_ENTRY = ".visible .entry k(.param .u64 p)\n{\n"
_OWN = (
    ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .f64 %g<4>; .reg .b16 %h<4>; .reg .v2 .b32 %v;"
    " .reg .v4 .f32 %w; .shared .align 16 .b32 s[8]; .local .align 8 .b16 l[6]; .param .align 4 .b8 q[12];"
)
# Where the texts of a group stand: at ¤.
FRAMES = {
    "whole": "¤\n",
    "module": f"{_HEAD}¤\n{_ENTRY}ret;\n}}\n",
    "variable": f"{_HEAD}¤\n{_ENTRY}.reg .b64 %d; mov.u64 %d, v;\nret;\n}}\n",
    "initial": f"{_HEAD}.global .u32 a[4]; .const .u32 c[2]; .func f() {{ ret; }}\n.global ¤;\n{_ENTRY}.reg .b64 %d; mov.u64 %d, v;\nret;\n}}\n",
    "head": f"{_HEAD}.visible .entry k¤\n{{\nret;\n}}\n",
    "body": f"{_HEAD}.global .align 8 .b32 a[4]; .const .align 4 .b8 c[8];\n{_ENTRY}{_OWN}\n¤ ;\nret;\n}}\n",
    "call": f"{_HEAD}.extern .func (.param .b32 o) vprintf(.param .b64 a, .param .b64 b);\n"
    ".func f() { ret; }\n.func (.reg .b32 %o) g(.reg .b32 %i, .reg .b64 %j) { mov.b32 %o, %i; ret; }\n"
    ".func (.param .b32 o) h(.param .align 8 .b8 i[8]) { .reg .b32 %r; ld.param.b32 %r, [i+4]; st.param.b32 [o], %r; ret; }\n"
    ".func m(.param .b32 i) { .reg .b32 %r; ld.param.b32 %r, [i]; st.shared.b32 [%r], %r; ret; }\n"
    ".func (.param .b32 o) t(.param .b32 n) { .reg .b32 %r<4>; .reg .pred %p; .param .b32 x, y; ld.param.b32 %r0, [n];"
    " setp.eq.u32 %p, %r0, 0; @%p bra E; sub.u32 %r1, %r0, 1; st.param.b32 [x], %r1; call (y), t, (x); ld.param.b32 %r2, [y];"
    " E: st.param.b32 [o], %r0; ret; }\n"
    ".func unread() { bogus; } .func unread2() { at all }\n.entry other() { ret; }\n.extern .func away(.param .b32 i);\n.global .u64 table[2] = {f, m};\n"
    f"{_ENTRY}{_OWN} .param .b32 x; .param .b64 y; .param .align 8 .b8 z[8];\n¤\nret;\n}}\n",
    "function": f"{_HEAD}¤\n{_ENTRY}{_OWN} .param .b32 x; .param .b64 y; .param .align 8 .b8 z[8];\ncall f, (%r1);\nret;\n}}\n",
}

TEXTS = {
    "whole": r"""
.version «9.0¦9¦1.0¦3.1¦3.2¦8.¦9.x¦x.0¦-1.0¦9.0.1»\n.target sm_90a\n.entry k() { ret; }
.version 9.0\n.target «sm_75¦sm_80¦sm_90¦sm_100a¦sm_120f¦compute_90¦90¦"sm_90"»\n.entry k() { ret; }
.version 9.0\n.target sm_90«, debug¦, texmode_independent¦, map_f64_to_f32¦, 5¦,»\n.entry k() { .reg .f64 %g; add.rn.f64 %g, %g, %g; ret; }
.version 3.«0¦1¦2»\n.target sm_20\n.entry k() { .reg .f32 %f; mad.f32 %f, %f, %f, %f; mad«.rn¦.ftz¦.rz.ftz».f32 %f, %f, %f, %f; ret; }
.version 9.0\n.target sm_90\n.address_size «64¦32¦16¦x¦¦-64»\n.entry k() { ret; }
.version 9.0\n.address_size 64\n.entry k() { ret; }
.target sm_90\n.entry k() { ret; }
«¦k¦.entry¦ret;¦;¦{ }¦"text"¦.reg .b32 %r;¦.unknown»
.version 9.0\n.target sm_90\n.entry k() { ret; }«;¦;;¦x¦$¦~¦.¦''¦\0¦\0\0 \n¦\0x¦`¦§»
.version 9.0\n.target sm_90\n.entry «k¦j¦K»() { ret; }\n.entry «k¦l»() { trap; }
.version 9.0\n.target sm_90\n.func k() { ret; }
.version 9.0\n.target sm_90\n.entry k()«;¦ ¦{ ret; ¦{ ret; } }¦{ { ret; }¦[ ret; ]»
.version 9.0\n.target sm_90\n.entry k() { /* { */ ret; // }\n } /* a\nb */ «nothing¦.entry l() { "}" }¦.func»
.version 9.0\n.target sm_90\n.entry k() { ret }
.version 9.0\n.target sm_90\n#line 7\n# 8 "file"\n.entry k() {\n# 9\n ret «x¦;» }
.version 9.0\n.target sm_90\n.entry k() {\n/* 1\n2 */\n.loc 1 5 0\n bogus; }
.version 9.0\n.target sm_90\n.reg .b32 %s; .reg .b64 %s2<2>; .reg .pred «%q¦%s»;\n.entry k() { .reg .b32 %r; add.u32 %r, %s, «%s¦%r¦1»; ret; }
.version 9.0\n.target sm_90\n.reg .b32 %s;\n.func f() { add.u32 %s, %s, 1; ret; }\n.entry k() { call f; ret; }
.version 9.0\n.target sm_90\n.reg .v2 .b32 %s;\n.entry k() { add.u32 %s.x, %s.y, 1; ret; }
""",
    "module": r"""
.file «1 "a.cu"¦1 "a.cu", 5, 6¦1 "a.cu", x¦"a.cu"¦1 a.cu¦1¦x "a.cu"»
.section «.debug_info { .b8 1, .b8 2 }¦.debug_info { { } }¦.debug_info¦{ }¦x y { "}" }»
.pragma «"nounroll";¦nounroll;¦"a", "b";¦"x"»
.alias «k, k¦f, k¦k, f¦f k¦5, k»;
.extern .func f();\n.alias «g, f;¦g, f¦f, g;»
.«visible¦extern¦weak¦common¦hidden¦visible .weak¦static» .global .b32 v;
.«global¦const¦shared¦local¦param¦reg¦tex¦sreg¦REG¦local_¦.reg» .b32 v;
.func f() ;\n.func «(.reg .b32 %o) ¦(.param .b32 o) ¦() ¦»f(.param .b64 a)«;¦\n»
.func f(«¦.param .b32¦.reg .b32 %a¦.param .b32 a .param .b32 b¦.param .b32 a, .param .b32 b¦.shared .b32 a¦a¦5¦.param .b32 a,») { ret; }
.func «f¦5¦.f¦%f¦$f¦_f¦f.g»() { ret; }
.func f() .noreturn { ret; }
.func f() «.unique¦.abi_preserve 5¦.attribute(.unified(1, 2))» { ret; }
.func f() .pragma "x"; { ret; }
.func f() «.file 1 "a"¦.global .b32 v;¦.entry l() { ret; }»
.entry l() «.global .b32 v;¦; ;»
.visible «.reg .b32 x¦5¦¦v¦.visible¦.file 1 "a"»;
""",
    "variable": r"""
.global .«b8¦u8¦s8¦b16¦u16¦s16¦f16¦bf16¦f16x2¦bf16x2¦b32¦u32¦s32¦f32¦tf32¦b64¦u64¦s64¦f64¦b128¦pred¦e4m3¦u128¦b4¦x» v;
.«global¦const¦shared¦local¦param» .«b8¦b32¦b64¦b128» v[3];
.global .align «1¦2¦3¦4¦0¦16¦128¦2048¦4096¦8192¦-4¦x» .b8 v[8];
.global .align 4 .align 16 .b8 v[3];
.global .b8 .align 4 v[3];
.global .b32 .u64 v;
.global .v«2¦4¦8¦3¦1» .«b8¦u16¦f32¦f64» v«¦[3]»;
.global .b32 v«[]¦[0]¦[1]¦[-1]¦[2][3]¦[2][]¦[][2]¦[1+1]¦[2*3-1]¦[1.5]¦[x]¦[2¦2]¦<4>¦[WARP_SZ]¦[1<<4]¦[4294967296]¦[536870912]¦[536870913]»;
.global .b32 v«, w¦, w[2], x¦, v¦,¦, 5¦ w¦»
.global .b32 v
.global v;
.global .b32;
.global .b32 5;
.global .«ptr¦managed¦texref¦surfref¦samplerref¦attribute(.managed)¦attribute .managed¦foo¦global¦const» .b32 v;
.global .«texref¦surfref¦samplerref» v;
.extern .shared .align «1¦16¦64» .b8 v[];
.extern .«global¦const¦shared» .b32 v«¦[]¦[4]»;
.shared .b32 w; .shared .b64 v; .extern .shared .b8 x[];
.const .b8 w; .const .b64 x; .const .align 32 .b16 v;
.const .b8 v[«65535¦65536¦65537»];
.global .align «1¦4» .b8 v[2]; .global .b8 v[3];
""",
    "initial": r"""
.u32 v = «5¦-5¦0x10¦0X1F¦0b101¦017¦08¦5U¦4294967295¦4294967296¦18446744073709551615¦18446744073709551616¦1.5¦0f3F800000¦'x'¦"x"¦x¦»
.«u8¦b8¦s16¦b16¦s32¦b32¦u64¦b64¦b128» v = «-1¦256¦65536¦0x123456789abcdef0¦-9223372036854775808¦1.0¦0f40490FDB¦0d400921FB54442D18»
.«f32¦f64¦f16¦bf16¦f16x2¦tf32» v = «1¦-1¦1.5¦-1.5¦1e3¦.5¦2.¦1.5e-3¦1E+2¦0f3F800000¦0F7fc00001¦0d3FF0000000000000¦0D7FF8000000000001¦1e39¦-1e400¦0f3F80¦1+1¦1.5+1¦2.0*3.0¦1.0/0.0¦1.0/4»
.u32 v[3] = «{}¦{1}¦{1,2}¦{1,2,3}¦{1,2,3,4}¦{1,2,}¦{,1}¦{1 2}¦{1,,2}¦{{1}}¦{1,{2}}¦{ , }¦1¦»
.u32 v[] = «{}¦{1}¦{1,2,3,4,5}¦{1,2,}¦5»
.u16 v[2][3] = «{}¦{1,2,3,4,5,6}¦{1,2,3,4,5,6,7}¦{{1,2},{3}}¦{{1,2} {3}}¦{{1,2,3,4},{3}}¦{{1},{2},{3}}¦{1,{2}}¦{1,2,{3}}¦{1,2,3,{4}}¦{1,2,3,4,{3}}¦{{1},2}¦{{1},}¦{{1},{1}}¦{{1},,{2}}¦{{{1}}}¦{{1}x}¦{{},{2}}»
.u8 v[4294967296][4294967296] = {{1},{2}}
.u8 v[][2147483648] = «{{1},{2}}¦{{1},{2},{3}}»
.u16 v[][2] = «{1,2,3}¦{{1},{2,3},{4}}¦{{1},{2,3,4}}¦{}¦{{}}¦{{},{}}»
.u8 v[2][2][2] = «{{{1},{2,3}},{{4}}}¦{{{1},2},{{4}}}¦{1,2,3,4,{5}}¦{1,2,{{3}}}¦{{1,2,{3}}}»
.u8 v[1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1]«¦[1]» = {1}
.v2 .u32 v = «{1,2}¦{1}¦{1,2,3}¦5»
.v4 .f32 v[2] = «{{1.0,2.0},{3.0}}¦{1.0,2.0,3.0,4.0,5.0}¦{{1.0,2.0,3.0,4.0,5.0}}»
.u64 v = «a¦a+4¦a-4¦a+4-8¦generic(a)¦generic(a)+8¦generic(c)+4¦c¦c+4¦f¦f+1¦k¦v¦nothing¦generic(a¦generic a¦generic(5)¦a+x¦a*2¦4+a¦(a)»
.«u32¦u16¦u8¦f64¦f32¦b64» v = a
.u64 v[3] = «{a,c+4,5}¦{1,a}¦{,a}¦{a b}¦{a,}¦{generic(c),2,generic(a)+12}»
.u8 v[8] = «{0xff(a),0xff00(a),0xff0000(a),0xff000000(a),0xff00000000(a),0xff0000000000(a),0xff000000000000(a),0xff00000000000000(a)}¦{0xff(a)}¦{0xff00(a)}¦{0xff(a),0xff00(c)}¦{0xff(a),0xff00(a),0xff0000(a)}¦{0xfff(a)}¦{0x1(a)}¦{0(a)}¦{0xff(a}¦{0xff a}¦{0xff0(a)}¦{-1(a)}»
.«u32¦u16» v = 0xff(a)
.u8 v[9] = «{0,0xff(a),0xff00(a),0xff0000(a),0xff000000(a),0xff00000000(a),0xff0000000000(a),0xff000000000000(a),0xff00000000000000(a)}¦{0xff(a+1),0xff00(a+1),0xff0000(a+1),0xff000000(a+1),0xff00000000(a+1),0xff0000000000(a+1),0xff000000000000(a+1),0xff00000000000000(a+2)}»
.s32 v[4] = «{1,-2,0x3}¦{1, 010,3}¦{ 1 ,\n 2,\n x }¦{1,/* c */2,// c\n3}¦{1+1,2*3,-(4)}¦{2147483648,-2147483649}¦{1\n,\n2\n}¦{1.5,2}¦{1,0f3F800000}¦{1/2,3}»
.f32 v[2] = «{0f3F800000,0F40000000}¦{0f3F800000,1.5}¦{0f3F800000,1}¦{ 0f3F800000 , 0f3F8 }¦{1,2}¦{-1.5,1.}»
.u8 v[3] = «{1,256,-1}¦{WARP_SZ,5U,08}¦{1,2,3,}¦{'a'}»
.u32 v[2] = «{ 1, 2 ¦1, 2¦{1}, w = 6¦{1,\n\n2,3}»
.u32 v = 5, «.u32 w = 6¦w = 6¦w[2]¦»
.s64 v[2] = «{-9223372036854775808,9223372036854775807}¦{-9223372036854775809}¦{18446744073709551615,18446744073709551616}»
""",
    "head": r"""
«()¦¦( )¦(¦)¦)»
(.param .«u8¦b16¦u32¦f64¦b128¦f16¦pred¦x» a)
(.param .u8 a, .param .u64 b, .param .u16 c, .param .align «2¦16¦3¦64» .b8 d[5], .param .u32 e)
(.param .u64 «.ptr .global .align 16¦.ptr .shared¦.ptr¦.ptr .const .align 4¦.foo¦.global» a)
(.param .v«2¦4» .f32 a, .param .u8 b)
(.param .b8 a[«0¦1¦3¦32764¦32765¦-1¦¦x»])
(.param .u32 a, .param .u32 a)
(.reg .u32 %a)
(.param .u32 a .param .u32 b)
(.param u32 a)
(.param .u32)
(.param .u32 5)
(.shared .u32 a)
(.param .align 8 .align 16 .b8 a[4])
() .maxntid «256¦16, 16¦16, 16, 4¦1025¦0¦x¦»
() .reqntid «64¦8, 8, 1¦32¦128¦0»
() .minnctapersm «2¦x¦»
() .maxnreg 32 .maxnctapersm 2 .maxntid 64
() .reqnctapercluster «2¦2, 1¦1, 2, 4¦2 2¦16¦0¦»
() .explicitcluster
() .maxclusterrank «8¦16¦¦0»
() .blocksareclusters .reqnctapercluster 2
() .reqnctapercluster 2, 2 .maxclusterrank 4 .explicitcluster .maxntid 64
() .pragma "nounroll"; .maxntid 5
() .unknown 5
() unknown
() .language 1
() .maxntid 16 16
() .maxntid , 16
""",
}  # fmt: skip

TEXTS["body"] = r"""
.reg .«b8¦b16¦u32¦s64¦f16¦f16x2¦bf16¦f32¦f64¦pred¦b128¦e4m3¦x» %x;
.reg .b32 «%x¦%x, %y¦%x<3>¦%x<3>, %y¦%x<0>¦%x<-1>¦%x<x>¦%x<3¦x¦5¦%x %y¦%x,,¦%x, %x¦%r0¦,»
.reg «%x¦.b32¦.v2 .b32 %x¦.v4 .f32 %x<2>¦.v8 .b32 %x¦.b32 .v2 %x¦.v2 %x¦.v2 .pred %x¦.align 4 .b32 %x»;
.reg .b32 %x<«1048576¦1048543»>;
.reg .b32 %x<3>; mov.b32 «%x0¦%x2¦%x3¦%x¦%x00», 1;
.reg .b32 x; mov.b32 «x¦X¦s», 1;
.reg .b64 s; add.u64 s, s, «1¦s»;
.shared .b32 «x¦x[4]¦x[2][2]¦x[]¦x[-1]¦x = 5¦x, y¦s»; mov.u32 %r0, «x¦y»;
.«shared¦local¦const¦global¦param» .align 32 .b8 x[6]; mov.u64 %d0, x; ld.b8 %r0, [x+1];
.«global¦const» .u32 x[2] = {1, 2}; mov.u64 %d0, x+4;
.global .u64 x[2] = { «a+4¦c¦s¦l¦nothing¦x» }; mov.u64 %d0, x;
.«visible¦extern¦weak» .«shared¦global¦local» .b32 x«¦[]»; mov.u64 %d0, x;
.local .align «1¦8¦16¦64» .b8 x[3]; .local .b64 y; st.local.b8 [x], %r0; st.local.b64 [y], %d0;
.«tex¦foo¦entry¦func¦sreg» .b32 x;
«.branchtargets L;¦.calltargets f;¦.callprototype _ f;»
{ .reg .b32 %x; mov.b32 %x, 1; { .reg .b64 %x; mov.b64 %x, 2; } mov.b32 %x, 3; }
{ .reg .b32 %x; } mov.b32 %x, 1;
{ .shared .b32 y[2]; mov.u32 %r0, y; } { .shared .b64 y; mov.u32 %r1, y; }
{ .shared .b32 y; } mov.u32 %r0, y;
{ .local .b32 y; st.local.b32 [y], 1; } { .local .b64 y; st.local.b64 [y], 1; }
{ ,},{ { },( )
.loc 1 5 «0¦3, function_name L, inlined_at 1 7 2¦3, function_name L+4, inlined_at 1 7 2¦3, foo 5¦» bogus;
.loc «1 0 0¦2 8 1¦1¦x 5 0¦1 x 0»\nbogus.u32 %r0;
.pragma "nounroll";\nbogus;
.pragma "nounroll"\nbogus;
.file 3 "b.cu"\nbogus;
.section .x { .b8 1 } bogus;
; ;; bogus;
«L:¦L: L:¦L: mov.u32 %r0, 1; L:¦{ L: } { L: }¦{ L: } L:¦L :¦5:¦%r0:»
bra «L¦L, M¦%r0¦5¦[L]¦L+4¦%p0¦s¦nothing¦k¦»; L:
@«%p0¦!%p0¦%p1¦%r0¦!%r0¦%nope¦5¦! %p0¦!!%p0¦%p0 %p1» bra L; L:
@%p0 «mov.u32 %r0, 1¦bar.sync 0¦ret¦exit¦trap¦shfl.sync.idx.b32 %r0, %r1, 0, 31, -1¦brx.idx %r0, T¦call nothing»; T: .branchtargets L; L:
{ L: bra L; } { L: }
{ bra L; } «bra L;¦» L:
bra L; { L: }
bra L; { L: bra M; } M: L:
brx.idx «%r0¦%r0, T¦%r0, L¦5, T¦T¦T, %r0¦%d0, T¦%p0, T¦%r0, T, 1¦%r0, nothing»; T: .branchtargets L, M; L: M:
brx.idx %r0, T; T: .branchtargets «L¦L, M¦L, nothing¦¦L M¦5¦L,»; L:
T: .«branchtargets¦calltargets» L; T: L:
T: .callprototype «_ (.param .b32 i);¦(.param .b32 o) _ ();¦»
brx.idx %r0, T; { T: .branchtargets L; } L:
{ T: .branchtargets L; brx.idx %r0, T; L: } L:
add.u32 %r0, %r1, «%r2+4¦%r2-4¦%r2+4-2¦%r2+x¦%r2+1.5¦%r2*2¦%r2+-4¦%r2 4¦-%r2¦+%r2¦~%r2¦!%r2¦%r2+%r3¦%r2+4294967296¦%r2+0x10»
add.«u32¦u64¦u16¦f32» «%r0, %r1, %r2+1¦%d0, %d1, %d2-1¦%h0, %h1, %h2+1¦%f0, %f1, %f2+1¦%f0, %f1, %p0+1»
mov.u64 %d0, «a¦a+4¦a-4¦a[2]¦a[-1]¦a[1+1]¦a[%r0]¦a[1]+4¦a+4[1]¦l[1]¦s[2]¦c[3]¦q[2]¦a[1.5]¦a[¦a[1¦a.x¦p¦p[1]¦nothing[1]¦a[1][2]»
mov.u32 %r0, «s¦s+4¦s[2]¦s[%r0]¦l¦c+1¦q¦a»
ld.global.u32 %r0, a[«0¦1¦-1¦%r0¦%d0¦%r0+2¦%r0-1¦%r0+1-3¦%h0¦%p0¦%f0¦%g0¦%tid.x¦WARP_SZ¦WARP_SZ-31¦2+%r0¦_¦x¦1+1¦1.5¦¦%r0*2¦%r0 1¦s»]
«ld.shared.u32 %r0, s¦ld.local.u16 %h0, l¦ld.const.u8 %r0, c¦ld.param.b32 %r0, q¦ldu.global.u32 %r0, a¦ld.u32 %r0, nothing¦ld.u32 %r0, %r1¦add.u32 %r0, %r1, s¦st.shared.u32 s»[«1¦%r1¦%d0+1»]
st.global.u32 a[«2¦%r0¦%d0-1»]«, %r1¦»
{ .shared .v2 .b32 x[3]; .global .u16 y[2][3]; ld.«shared.b32 %r0, x[1]¦shared.v2.b32 {%r0, %r1}, x[%r2]¦global.u16 %h0, y[2]¦global.u16 %h0, y[%r1+1]»; }
ld.«shared¦local¦const¦param».u16 %h0, [«a¦s+2¦l+4¦c+1¦q¦p+4¦%d0+2¦5¦%h0»]
ld.global.u16 %h0, [«a¦s+2¦l+4¦c+1¦q¦p¦p+4¦nothing¦%d0+2¦%r0-1¦%d0+4-2¦%d0+(2)¦%d0+1.5¦5¦-5¦0x100¦%p0¦%h0¦%d0+%r0¦s[1]¦¦%v¦%v.x¦%tid¦+4¦WARP_SZ¦WARP_SZ+4¦4+WARP_SZ¦_¦1.5¦%d0 4¦%d0;¦(%d0)¦%d0, %r0¦%d0, {%r0}»]
ld.param.u64 %d0, [p«¦+0¦+1¦+8¦+4¦-8»]
ld.param.«u8¦s16¦u32¦f32¦v2.u32¦u64¦b128» «%r0¦%d0¦%h0¦{%r0, %r1}¦%f0», [p]
mov.«b32¦u32» «%v.x¦%v.y¦%v.z¦%v.r¦%v.g¦%v.b¦%v¦%w.w¦%w.a¦%w.x¦%w.q», %r1;
mov.v2.«b32¦u32¦f32¦b64» «%v, %v¦%v, {%r0, %r1}¦{%r0, %r1}, %v¦{%r0, %r1}, {%r1, %r0}¦{_, %r1}, %v¦%v, {1, 2}¦%v, %r0¦%r0, %v¦%v, {%r0, %r1, %r2}¦%v, %v, %v¦%v»
mov.v4.f32 %w, «%w¦{%f0, %f1, %f2, %f3}¦{%w.w, %w.z, %w.y, %w.x}¦{1.0, 2.0, 3.0, 4.0}¦%v¦{%f0, %f1}»
«ld.shared.v2.b32 %v, [s]¦st.shared.v2.b32 [s], %v¦ld.shared.v4.f32 %w, [s]¦ld.shared.v4.f32 %v, [s]¦ld.shared.v2.f32 %w, [s]»
mov.b64 %d0, «%v¦{%v.x, %v.y}¦{%r0, %v.y}¦%w¦{%h0, %h1, %h2, %h3}¦{%r0}¦{%r0, %h0}¦{%r0, {%r1}}¦{%r0 %r1}¦{,%r0}¦{%r0, [s]}¦{%r0, %r1»
mov.u32 %r0, «%tid¦%tid.x¦%tid.y¦%tid.w¦%tid.q¦%ntid.z¦%ctaid.w¦%nctaid.x¦%laneid¦%laneid.x¦%warpid¦%nwarpid¦%smid¦%nsmid¦%gridid¦%lanemask_eq¦%lanemask_le¦%lanemask_lt¦%lanemask_ge¦%lanemask_gt¦%lanemask_xx¦%clock¦%clock_hi¦%clock64¦%globaltimer¦%globaltimer_lo¦%globaltimer_hi¦%pm0¦%pm7¦%pm8¦%pm0_64¦%pm7_64¦%pm8_64¦%envreg0¦%envreg1¦%envreg2¦%envreg31¦%envreg32¦%total_smem_size¦%aggr_smem_size¦%dynamic_smem_size¦%current_graph_exec¦%is_explicit_cluster¦%clusterid.x¦%nclusterid.y¦%cluster_ctaid.z¦%cluster_nctaid.x¦%cluster_ctarank¦%cluster_nctarank¦%reserved_smem_offset_begin¦%reserved_smem_offset_end¦%reserved_smem_offset_0¦%reserved_smem_offset_1¦%reserved_smem_offset_2¦%reserved_smem_offset_cap¦%reserved_smem_x¦%ntid¦%tidx¦%TID.x¦%tid.X¦%tid.xy¦WARP_SZ¦WARP_SIZE¦warp_sz¦%warp_sz»
mov.u64 %d0, «%clock64¦%globaltimer¦%gridid¦%current_graph_exec¦%pm0_64¦%tid.x¦%clock¦%reserved_smem_offset_cap¦%laneid»
mov.u16 %h0, «%tid.x¦%laneid¦%clock64¦5¦65536¦-1»
mov.pred %p0, «%p1¦!%p1¦1¦0¦2¦%is_explicit_cluster¦%r0¦1.0»
mov.v4.u32 {%r0, %r1, %r2, %r3}, «%tid¦%ctaid¦%nctaid¦%clusterid¦%cluster_nctaid¦%laneid»
mov.«u32 %r0¦f32 %f0¦b32 %f0¦f64 %g0¦b64 %d0¦u64 %d0¦s16 %h0», «1¦1.5¦0f3F800000¦0d3FF0000000000000¦-1¦0x1ffffffff»
mov.«u32¦b32¦f64¦b64¦s16¦pred» «%r0¦%f0¦%d0¦%g0¦%h0¦%p0», %r1
selp.u32 %r0, 1, 2, «%p0¦!%p0¦%r0¦1¦!1¦%p0|%p1»
setp.«eq.u32¦lt.f32» «%p0¦%p0|%p1¦%p0|_¦_|%p1¦%p0|%r1¦%p0|¦|%p0¦%p0|%p1|%p2¦_», %r0, %r1
«setp.eq.u32 %p0¦add.u32 %r0», «%r0¦%r0, %r1, %r2¦%r0¦, %r1¦%r0 %r1»
add.u32 %r0, %r1, %r2«¦;¦;;¦; ;¦.x; ¦: ¦,¦,;»mov.u32 %r1, 1
«add¦.add¦add.¦add .u32¦add.u32.¦ADD.u32¦add.U32¦5¦_¦%r0» %r0, %r1, %r2;
add.u32 «%r0 %r1 %r2¦%r0, %r1¦%r0, %r1, %r2, %r3¦(%r0), %r1, %r2¦[%r0], %r1, %r2¦%r0, %r1, (%r2)¦%r0, %r1, [%r2]¦%r0, %r1, "x"¦%r0, %r1, 'x'¦%r0, %r1, %r2:¦%r0, %r1, @%r2¦%r0, %r1, %r2?1:2»
add.u32 %r0, %r1, «5¦(5)¦(5+1)¦1?2:3¦0?2:3¦5>4?1:0¦!0¦!5¦~0¦-(-5)¦+5¦-0x80000000¦5U¦-5U¦WARP_SZ¦-WARP_SZ¦WARP_SZ*2¦sizeof¦(.s64)5¦(.u64)-5¦(.u32)5¦1<2¦1<<33¦1>>1¦4/2¦-4/3¦4%3¦-4%3¦4/0¦4%0¦1.5*2¦(1¦1)¦1+¦*2¦1 2¦1+1.5¦1.5+1¦1.5<2.5¦1&&0¦1||0¦0x¦0b2¦1e¦1.5.2»
bar.sync «0¦15¦16¦-1¦%r0¦%d0¦0, 32¦0, 33¦0, 64¦0, %r0¦0, 0¦0, 2048¦0, -32¦¦1.5¦[s]»
bar.«arrive 1, 64¦arrive 1¦arrive 0, 64¦red.popc.u32 %r0, 1, %p0¦red.popc.u32 %r0, 1, 64, %p0¦red.and.pred %p0, 1, !%p1¦red.xor.pred %p0, 1, %p1¦red.popc.pred %p0, 1, %p1¦red.and.u32 %r0, 1, %p1»
"""  # fmt: skip

TEXTS["call"] = r"""
call «f¦f, ()¦(), f, ()¦f, (%r0)¦(%r0), f¦%d0¦%r0¦5¦¦"f"¦nothing¦k¦other¦away, (x)¦[f]¦f+4»;
call «(%r0), g, (%r1, %d0)¦g, (%r1, %d0)¦(%r0), g, (%r1)¦(%r0), g, (%r1, %d0, 1)¦(%r0), g, (1, 2)¦(%r0), g, (%d0, %r0)¦(%f0), g, (%f1, %g0)¦(_), g, (%r1, %d0)¦(%r0), g, (s, a)¦(%r0, %r1), g, (%r1, %d0)¦(%p0), g, (%r1, %d0)¦(%r0), g, (%v)¦(%r0), g, ({%r1, %d0})»;
call «(x), h, (z)¦(x), h, (y)¦(x), h, (x)¦(y), h, (z)¦(%r0), h, (z)¦(%d0), h, (z)¦(x), h, (%d0)¦(x), h, (5)¦(x), h, (l)¦(x), h, (nothing)¦(x), h, (p)¦h, (z)¦(x), h»;
call «m, (x)¦m, (%r0)¦m, (5)¦m, (1.5)¦m, (%h0)¦m, (y)¦m, (%p0)¦m, (s)¦m, (WARP_SZ)»;
call «(x), t, (x)¦(x), t, (%r0)¦(%r0), t, (5)¦t, (x)»;
call«.uni¦.foo¦.uni.uni» f;
@«%p0¦!%p0» call f;
@%p0 call (x), h, (z);
call unread;
call unread2;
call «%d0, P¦%d0, (), P¦%d0, table¦%d0, nothing¦(x), %d0, (z), P¦%d0, (%r0), P¦%d0, (x), P¦%r0, P¦%d0, T»; P: .callprototype _ (); T: .calltargets f, m;
mov.u64 %d0, «f¦g¦f+4¦k¦nothing¦away¦vprintf»; call «%d0, ()¦(x), %d0, ()¦(x), %d0, (z)¦(%r0), %d0, (%r1, %d1)», P; P: .callprototype _ ();
call (x), vprintf, «(y, y)¦(%d0, %d1)¦(%d0)¦(%r0, %d0)¦(%d0, %d1, %d2)¦()»;
call «(x),¦» «__assertfail¦malloc¦free¦vprintf¦puts», (y, y, x, y);
st.param.b32 [«x¦y¦x+4¦x-4»], %r0; call m, (x); ld.param.b32 %r1, [«x¦y»];
st.param.b32 [«z¦z+4¦z+6»], %r0; call (x), h, (z); ld.param.b32 %r1, [«x¦z+4»];
st.param.«b8¦u16¦f32¦b64¦v2.b32» [z], «%r0¦%h0¦%f0¦%d0¦{%r0, %r1}»; call (x), h, (z);
st.param.«b8 [x], %r0¦b8 [z+4], %d0¦u16 [z+4], %h0¦f32 [x], %f0¦b64 [z+4], %d0¦b64 [x], %d0¦v2.b32 [z+4], {%r0, %r1}¦b32 [z], 5¦b8 [z], 5¦b32 [z], 1.5¦b32 [z], s¦b64 [z], s¦b32 [z], _¦b32 [z], %p0»; call (x), h, (z);
st.param.b64 [z], %d0; call (x), h, (z); ld.param.«u8¦s8¦u16¦s32¦b64¦f32¦v2.u16» «%r0¦%d0¦%h0¦%f0¦{%r0, %r1}», [x];
"""  # fmt: skip

TEXTS["function"] = r"""
.func f(.«reg¦param» .«b32¦u32¦s32¦f32¦b64¦u16¦u8¦pred¦b8» «a¦%a») { ret; }
.func f(.param .b32 a) «ret;¦;¦{ ret; } { }¦{ ret;¦»
.func f(.reg .b32 %a) { «ret¦exit¦trap¦bra L¦bra L; L:¦ret; ret¦@%p ret¦call f, (%a)¦.reg .b32 %a; ret¦mov.b32 %a, 1¦.local .b32 l; st.local.b32 [l], %a¦.shared .b32 l; st.shared.b32 [l], %a¦add.u64 %a, %a, 1»; }
.func f(.reg .b32 %a, .reg .b32 %b) { ret; }
.func (.reg .b32 %o) f(.reg .b32 %a) { ret; }
.func f(.reg .v«2¦4» .b32 %a) { ret; }
.func f(.param .b32 a) { .reg .b32 %r; ld.param.«b32 %r, [a]¦b32 %r, [a+4]¦u8 %r, [a]¦b32 %r, [b]¦b64 %r, [a]»; ret; }
.extern .func f(.param .b32 a);\n.«weak¦visible» .func f(.param .b32 a) { ret; }
.func f(.param .b32 a) { ret; }\n.extern .func f(.param .b32 a);
.func g(.param .b32 a) { ret; }\n.alias f, g;
.extern .func (.param .b64 o) malloc(.param .b64 n);\n.extern .func free(.param .b64 a);\n.func f(.param .b32 a) { .param .b64 n, o; call (o), malloc, (n); call free, (o); ret; }
.func f(.param .b32 a) { .reg .b32 %r; .param .b32 b; ld.param.b32 %r, [a]; st.param.b32 [b], %r; call «f¦g», (b); ret; }
.func f(.param .b32 a) { .local .align «8¦32» .b8 l[9]; .local .b16 m; .reg .b32 %r; .param .b32 b; ld.param.b32 %r, [a]; st.local.b8 [l+8], %r; st.local.b16 [m], %r; st.param.b32 [b], %r; call f, (b); ld.local.u8 %r, [l+8]; st.shared.b8 [%r], %r; ret; }
"""  # fmt: skip

# Threads of a block, by the group; of any other 64.
BLOCKS = {
    f"rows of {x}": (x, y, z)
    for x, y, z in ((32, 3, 1), (16, 3, 1), (8, 8, 1), (4, 4, 4), (2, 16, 2), (5, 13, 1))
}
_ROWS = r"""
mad.lo.u32 %r0, %y, «16¦32¦100», %x; mul.wide.u32 %d1, %r0, «4¦8»; add.u64 %d0, %d0, %d1; ld.global.u32 %r1, [%d0+4]; st.global.u32 [%d0], %r1
mad.lo.u32 %r0, %y, 40, %x; mad.lo.u32 %r0, %z, 500, %r0; mul.wide.u32 %d1, %r0, 16; add.u64 %d0, %d0, %d1; ld.global.«v4.f32 {%f0, %f1, %f2, %f3}¦v2.u64 {%d2, %d3}¦v2.u8 {%r1, %r2}¦u8 %r1¦f64 %g0¦u16 %h0», [%d0]
mad.lo.u32 %r0, %y, 40, %x; mul.wide.u32 %d1, %r0, «8¦12»; add.u64 %d0, %d0, %d1; st.global.«v2.f32 [%d0], {%f0, %f1}¦u64 [%d0], %d1¦u8 [%d0], %r0¦v2.u16 [%d0], {%h0, %h1}¦u16 [%d0], 5»
mul.lo.u32 %r0, %y, 24; «and¦or¦xor».b32 %r1, %x, 6; add.u32 %r0, %r0, %r1; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; «ld.global.u32 %r1, [%d0]¦st.global.u32 [%d0], %r1¦atom.global.add.u32 %r1, [%d0], %r0¦red.global.add.u32 [%d0], 1»
shl.b32 %r0, %y, «5¦6»; add.u32 %r0, %r0, %x; shl.b32 %r0, %r0, 2; «ld.shared.u32 %r1, [%r0]¦st.shared.v2.u32 [%r0], {%r1, %r2}¦cp.async.ca.shared.global [%r0], [%d0], 4¦ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0]»
mov.u32 %r1, «%x¦%y¦%z¦%laneid¦%warpid»; setp.«lt¦eq».u32 %p0, %r1, 3; @%p0 bra L; add.u32 %r1, %r1, 1; L: st.global.u32 [%d0], %r1
"""  # fmt: skip
for _name in BLOCKS:
    TEXTS[_name] = _ROWS
    FRAMES[_name] = (
        f"{_HEAD}{_ENTRY}{_OWN} .reg .b32 %x, %y, %z; ld.param.u64 %d0, [p]; mov.u32 %x, %tid.x; mov.u32 %y, %tid.y;"
        " mov.u32 %z, %tid.z;\n¤ ;\nret;\n}\n"
    )

# How lanes go, and where warps stop; all builds of these are kept.
BUILT = ("flow",)
TEXTS["flow"] = r"""
L: add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, «10¦%w¦%t»; @%p0 bra L; st.shared.u32 [%r0], %r0
L: «ld.volatile.shared.u32 %r0, [s]¦ld.global.u32 %r0, [%d0]¦atom.shared.add.u32 %r0, [s], 1¦ld.acquire.gpu.global.u32 %r0, [%d0]»; setp.lt.u32 %p0, %r0, «9¦%t»; @%p0 bra L
setp.lt.u32 %p0, «%t¦%w», 9; @«%p0¦!%p0» bra L; add.u32 %r0, %r0, 1; «bar.sync 0;¦bar.sync 1, 64;¦bar.warp.sync -1;¦shfl.sync.idx.b32 %r1, %r0, 1, 31, -1;¦exit;¦ret;¦trap;¦» L: st.shared.u32 [s], %r0
setp.lt.u32 %p0, «%t¦%w», 9; @%p0 «exit;¦trap;¦bar.sync 0;¦bar.red.popc.u32 %r0, 0, %p0;¦barrier.cluster.arrive; barrier.cluster.wait;¦nanosleep.u32 5;¦brx.idx %t, T;¦vote.sync.any.pred %p1, %p0, -1;» T: .branchtargets L, M; L: st.shared.u32 [s], %r0; M: add.u32 %r0, %r0, 2
and.b32 %r1, %t, 3; brx.idx «%r1¦%w», T; T: .branchtargets A, B, A, C; A: add.u32 %r0, %r0, 1; bra C; B: add.u32 %r0, %r0, 2; C: «bar.sync 0;¦» st.shared.u32 [%r0], %r1
A: add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, %t; @%p0 bra B; «bar.sync 0;¦» C: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, «5¦%t»; @%p1 bra C; B: setp.lt.u32 %p2, %r0, 20; @%p2 bra A; st.shared.u32 [%r0], %r1
setp.lt.u32 %p0, %t, 9; @%p0 bra B; A: add.u32 %r0, %r0, 1; B: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %t; @%p1 bra A; st.shared.u32 [%r0], %r1
setp.lt.u32 %p0, %t, 40; @%p0 bra L; M: ld.volatile.shared.u32 %r0, [s]; setp.eq.u32 %p1, %r0, 0; @%p1 bra M; «exit;¦bra N;» L: st.volatile.shared.u32 [s], 1; N: bar.sync 0
A: atom.shared.cas.b32 %r0, [s], 0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra A; ld.shared.u32 %r1, [s+4]; add.u32 %r1, %r1, 1; st.shared.u32 [s+4], %r1; «atom.shared.exch.b32 %r0, [s], 0¦st.volatile.shared.u32 [s], 0»
L: mbarrier.try_wait.parity.shared.b64 %p0, [s], «0¦%r0»; @!%p0 bra L; «bar.sync 0¦»
mov.u32 %r1, %t; mov.u32 %r2, 5; wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r1, %r2, %r1, %r2}, %d1, 1, 1, 1, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned «0¦1»; st.shared.f32 [s], %f0
setp.lt.u32 %p0, %w, 5; @%p0 bra L; «wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d0, %d1, 1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;¦cp.async.ca.shared.global [%r0], [%d0], 16; cp.async.wait_all;¦setmaxnreg.dec.sync.aligned.u32 40;» L: st.shared.f32 [s], %f0
add.u32 %r0, %t, «0x80000000¦-5¦1»; cvt.«u64.u32¦s64.s32» %d1, %r0; shl.b64 %d1, %d1, 2; add.u64 %d0, %d0, %d1; ld.global.u32 %r1, [%d0]; st.global.u32 [%d0], %r1
.reg .b32 %x<20>; setp.lt.u32 %p0, %t, 9; ld.shared.v4.u32 {%x0, %x1, %x2, %x3}, [s]; bar.sync 0; add.u32 %x4, %x0, %x1; @%p0 bra L; bar.sync 1, 32; L: add.u32 %x5, %x4, %x3; bar.sync 0; st.shared.v2.u32 [s], {%x5, %x2}
"""  # fmt: skip
FRAMES["flow"] = (
    f"{_HEAD}{_ENTRY}{_OWN} .reg .b32 %t, %w; ld.param.u64 %d0, [p]; ld.param.u32 %w, [p]; mov.u32 %t, %tid.x;"
    " mov.u32 %r0, 0; mov.u32 %r1, 0;\n¤ ;\nret;\n}\n"
)
_RECURSIVE = (
    " .reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %d; .reg .b16 %h; .reg .f64 %g; .reg .b128 %q; .param .b32 x, y;"
    " ld.param.b32 %r0, [a]; setp.eq.u32 %p0, %r0, 0; @%p0 bra E; sub.u32 %r1, %r0, 1; st.param.b32 [x], %r1;"
)
TEXTS["recursion"] = r"""
.func (.param .b32 o) f(.param .b32 a) {¤ call (y), «f¦g», (x); ld.param.b32 %r2, [y]; add.u32 %r0, %r0, %r2; E: st.param.b32 [o], %r0; ret; } .func (.param .b32 o) g(.param .b32 a) {¤ call (y), «f¦g», (x); ld.param.b32 %r2, [y]; E: st.param.b32 [o], %r2; ret; }
.func (.param .b32 o) f(.param .b32 a) {¤ «cvt.u64.u32 %d, %r0¦cvt.u16.u32 %h, %r0¦cvt.rn.f64.u32 %g, %r0¦setp.gt.u32 %p1, %r0, 5¦mov.b128 %q, {%d, %d}¦mov.u32 %r3, %r0»; call (y), f, (x); st.shared.b64 [0], %d; st.shared.b16 [8], %h; st.shared.f64 [16], %g; @%p1 trap; mov.b128 {%d, %d}, %q; st.shared.b32 [24], %r3; E: ret; }
.func (.param .b32 o) f(.param .b32 a) {¤ .local .align «4¦16» .b8 l[«4¦9¦16»]; .local .b16 m; st.local.b8 [l+3], %r0; mov.u64 %d, l; call (y), f, (x); ld.local.u8 %r2, [l+3]; st.local.b16 [m], 5; E: st.param.b32 [o], %r2; ret; }
.func (.reg .b32 %o) h(.reg .b32 %a, .reg .b64 %b) { .reg .pred %p; .reg .b32 %r; setp.eq.u32 %p, %a, 0; @«%p¦!%p» bra E; sub.u32 %r, %a, 1; call («%r¦_¦%o»), h, (%r, %b); E: add.u32 %o, %a, %r; ret; } .func (.param .b32 o) f(.param .b32 a) { .reg .b32 %r; .reg .b64 %d; ld.param.b32 %r, [a]; call (%r), h, (%r, %d); st.param.b32 [o], %r; ret; }
¦¦
.func (.param .b32 o) f(.param .b32 a) {¤ @%p1 call (y), f, (x); call (y), f, (x); L: sub.u32 %r0, %r0, 1; setp.gt.u32 %p1, %r0, 3; @%p1 bra L; E: st.param.b32 [o], %r0; ret; }
"""  # fmt: skip
_OF_BYTES = (
    ".func (.param .align 8 .b8 o[«M¦16»]) h(.param .align 8 .b8 a[N]) { .reg .pred %p; .reg .b32 %r; .param .align 8 .b8 x[N], y[M];"
    " ld.param.b32 %r, [a+4]; setp.eq.u32 %p, %r, 0; @%p bra E; st.param.b32 [x], %r; st.param.b8 [x+4], 0; call (y), h, (x);"
    " ld.param.b32 %r, [y+4]; E: st.param.b32 [o], %r; ret; } .func (.param .b32 o) f(.param .b32 a) { .param .align 8 .b8 x[N], y[M];"
    " .reg .b32 %r; ld.param.b32 %r, [a]; st.param.b32 [x+4], %r; call (y), h, (x); ld.param.b32 %r, [y]; st.param.b32 [o], %r; ret; }"
)
_SIZES = ((8, 8), (12, 9), (7, 20))
_STRUCTURES = "\n".join(_OF_BYTES.replace("N", str(n)).replace("M", str(m)) for n, m in _SIZES)
TEXTS["recursion"] = TEXTS["recursion"].replace("¤", _RECURSIVE).replace("¦¦", _STRUCTURES)
FRAMES["recursion"] = (
    f"{_HEAD}¤\n{_ENTRY}{_OWN} .param .b32 x, y; st.param.b32 [x], 5; call (y), f, (x); ld.param.b32 %r0, [y];"
    " st.shared.b32 [s], %r0;\nret;\n}\n"
)

_NUMBERS = ("0", "7", "-3", "5U", "0x8000000000000000", "2.5", "-0.0")
_OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "<<",
    ">>",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "&",
    "^",
    "|",
    "&&",
    "||",
)
_OF_INTEGERS = ("%", "<<", ">>", "&", "^", "|")
_MIXED = (
    "1+2*3", "(1+2)*3", "10-4-3", "100/5/2", "2*3 % 4", "1<<2+1", "1<<2<4", "1|2^3&4", "7&3==3", "1==1&&2!=2||3", "1||0&&0",
    "-2*-3", "- -3", "!0+1", "!(0+1)", "~1&3", "~-1", "-~5", "5-+3", "1?2:0?3:4", "0?1:0?3:4", "(1?0:1)?5:6", "1.5?2:3",
    "0.0?2:3", "!1.5", "!0.0", "~1.5", "-1.5", "+1.5", "(.s64)-1>>1", "(.u64)-1>>1", "(.u64)1-2<0", "(.s64)5U-6<0", "1-2<0",
    "1U-2<0", "0x7fffffffffffffff+1", "-1>>63", "0xffffffffffffffff>>63", "1<<63", "1<<64", "1<<65", "1>>64", "-7/2", "-7 % 2",
    "7/-2", "7 %-2", "-7/2U", "0f3F800000", "-0f3F800000", "0f3F800000+1", "0f3F800000<2", "0d4000000000000000*3", "2.5 % 2", "7%2",
    "2.5&1", "2.5<<1", "2.5&&1", "2.5||0.0", "1.0/3", "1/3.0", "1e308*10", "WARP_SZ-1", "(WARP_SZ)", "010+1", "0b11+0x11",
)  # fmt: skip


def list_expressions() -> dict[str, list[str]]:
    """By an operator and its first number, constants with a second one of every kind; and constants with several operators."""
    found: dict[str, list[str]] = {}
    for operator, first in itertools.product(_OPERATORS, _NUMBERS):
        whole = operator in _OF_INTEGERS  # of floats one is enough
        others = _NUMBERS[:6] if whole else _NUMBERS
        if not whole or first in others:
            found[f"{first} {operator}"] = [f"{first} {operator} {other}" for other in others]
    deep = ["(" * count + "1" + ")" * count for count in (31, 32, 63, 64)]
    deep += ["-" * count + "1" for count in (61, 62, 63, 64)]
    deep += ["1?" * count + "1" + ":0" * count for count in (61, 62, 63, 64)]
    return found | {"several operators": list(_MIXED), "deep": deep}
