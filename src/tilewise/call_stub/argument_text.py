"""LLVM text that takes the arguments of a call apart: which there are, and what happens to the sums."""

from __future__ import annotations

from tilewise.call_stub.shared_memory import (
    ARGUMENTS,
    FIRST_EXTRA,
    FIRST_NUMBER,
    FORM_BITS,
    KEY_WORDS,
    MAX_EXTRAS,
    MAX_GIVEN,
    PLAIN_WORDS,
)

__all__ = ["ARGUMENT_TEXT"]

_PLACES = {name: place for place, name in enumerate(ARGUMENTS)}


def _form(*names: str) -> int:
    """The bits of a form."""
    return sum(1 << FORM_BITS[name] for name in names)


# An array or a number more; %none and null are no argument.
_APPEND = f"""
define internal i1 @is_given(ptr %object) #1 {{
  %none = get State.none @tw_state
  %is_null = icmp eq ptr %object, null
  %is_none = icmp eq ptr %object, %none
  %absent = or i1 %is_null, %is_none
  %given = xor i1 %absent, true
  ret i1 %given
}}

define internal void @add_extra(ptr %call, ptr %object) #1 {{
  %count = get Call.extra_count %call
  %extras = at Call.extras %call
  %extra_at = getelementptr ptr, ptr %extras, i64 %count
  store ptr %object, ptr %extra_at
  %after = add i64 %count, 1
  set Call.extra_count %call = %after
  ret void
}}

define internal void @add_number(ptr %call, double %number) #1 {{
  %count = get Call.number_count %call
  %values = at Call.values %call
  %place = add i64 %count, {FIRST_NUMBER}
  %number_at = getelementptr double, ptr %values, i64 %place
  store double %number, ptr %number_at
  %after = add i64 %count, 1
  set Call.number_count %call = %after
  ret void
}}

; A float, NumPy's float64 or an int, and of no other type; 0 is none of them, 1 is read, 2 is too large.
define internal i32 @read_number(ptr %object, ptr %number_at) #2 {{
entry:
  %type = get Object.type %object
  %float_type = get State.float_type @tw_state
  %is_plain_float = icmp eq ptr %type, %float_type
  %wide_type = get State.wide_type @tw_state
  %is_wide = icmp eq ptr %type, %wide_type
  %is_float = or i1 %is_plain_float, %is_wide
  br i1 %is_float, label %float, label %other
float:
  %float_as_double = get State.float_as_double @tw_state
  %float_value = call double %float_as_double(ptr %object)
  store double %float_value, ptr %number_at
  ret i32 1
other:
  %int_type = get State.int_type @tw_state
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %int, label %neither
int:
  %int_as_double = get State.int_as_double @tw_state
  %int_value = call double %int_as_double(ptr %object)
  store double %int_value, ptr %number_at
  %may_be_error = fcmp oeq double %int_value, -1.0
  br i1 %may_be_error, label %ask, label %good
ask:
  %error_occurred = get State.error_occurred @tw_state
  %error = call ptr %error_occurred()
  %no_error = icmp eq ptr %error, null
  br i1 %no_error, label %good, label %failed
good:
  ret i32 1
failed:
  call void @clear_error()
  ret i32 2
neither:
  ret i32 0
}}
"""

# The activation of this name, as records have it, or null.
_FIND_ACTIVATION = """
define internal ptr @find_activation(ptr %object) #2 {
entry:
  %activations = at State.activations @tw_state
  %count = get State.activation_count @tw_state
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %other ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %unlike
compare:
  %known_at = getelementptr ptr, ptr %activations, i64 %i
  %known = load ptr, ptr %known_at
  %same = icmp eq ptr %known, %object
  br i1 %same, label %found, label %other
other:
  %after = add i64 %i, 1
  br label %next
found:
  ret ptr %known
unlike:
  %type = get Object.type %object
  %text_type = get State.text_type @tw_state
  %is_text = icmp eq ptr %type, %text_type
  br i1 %is_text, label %next_text, label %none
next_text:
  %j = phi i64 [ 0, %unlike ], [ %next_j, %other_text ]
  %more_texts = icmp ult i64 %j, %count
  br i1 %more_texts, label %compare_texts, label %none
compare_texts:
  %text_at = getelementptr ptr, ptr %activations, i64 %j
  %text = load ptr, ptr %text_at
  %compare_them = get State.compare_texts @tw_state
  %order = call i32 %compare_them(ptr %text, ptr %object)
  %equal = icmp eq i32 %order, 0
  br i1 %equal, label %found_text, label %other_text
other_text:
  %next_j = add i64 %j, 1
  br label %next_text
found_text:
  ret ptr %text
none:
  ret ptr null
}
"""

# The number of an arithmetic, which stands among the activations, where a form has it; 0 if it is unknown.
_FIND_ARITHMETIC = f"""
define internal i64 @find_arithmetic(ptr %object) #2 {{
entry:
  %name = call ptr @find_activation(ptr %object)
  %unknown = icmp eq ptr %name, null
  br i1 %unknown, label %none, label %begin
begin:
  %activations = at State.activations @tw_state
  br label %next
next:
  %i = phi i64 [ 0, %begin ], [ %number, %next ]
  %known_at = getelementptr ptr, ptr %activations, i64 %i
  %known = load ptr, ptr %known_at
  %number = add i64 %i, 1
  %same = icmp eq ptr %known, %name
  br i1 %same, label %found, label %next
found:
  %bits = shl i64 %number, {FORM_BITS["arithmetic"]}
  ret i64 %bits
none:
  ret i64 0
}}
"""

# By place and by name into the places of ARGUMENTS; false where a name is unknown or an argument comes twice.
_TAKE_ARGUMENTS = f"""
define internal i1 @take_arguments(ptr %call, ptr %args, i64 %count, ptr %names) #1 {{
entry:
  %objects = at Call.objects %call
  store <8 x i64> zeroinitializer, ptr %objects, align 64
  %more_objects = getelementptr <8 x i64>, ptr %objects, i64 1
  store <8 x i64> zeroinitializer, ptr %more_objects, align 64
  set Call.extra_count %call = 0
  set Call.number_count %call = 0
  set Call.held_count %call = 0
  set Call.form %call = 0
  set Call.text %call = null
  %positional = at State.positional @tw_state
  %most = get State.positional_count @tw_state
  %few = icmp ult i64 %count, 2
  %many = icmp ugt i64 %count, %most
  %wrong_count = or i1 %few, %many
  br i1 %wrong_count, label %no, label %place
place:
  %i = phi i64 [ 0, %entry ], [ %next_i, %place ]
  %filled = phi i64 [ 0, %entry ], [ %filled_more, %place ]
  %argument_at = getelementptr i64, ptr %positional, i64 %i
  %argument = load i64, ptr %argument_at
  %value_at = getelementptr ptr, ptr %args, i64 %i
  %value = load ptr, ptr %value_at
  %object_at = getelementptr ptr, ptr %objects, i64 %argument
  store ptr %value, ptr %object_at
  %bit = shl i64 1, %argument
  %filled_more = or i64 %filled, %bit
  %next_i = add i64 %i, 1
  %placed = icmp eq i64 %next_i, %count
  br i1 %placed, label %by_name, label %place

by_name:
  %bare = icmp eq ptr %names, null
  br i1 %bare, label %taken, label %begin_names
begin_names:
  %name_count = get VarObject.size %names
  %tuple_start = get State.tuple_start @tw_state
  %first_name = getelementptr i8, ptr %names, i64 %tuple_start
  %first_value = getelementptr ptr, ptr %args, i64 %count
  %keywords = at State.keywords @tw_state
  %keyword_count = get State.keyword_count @tw_state
  br label %name
name:
  %k = phi i64 [ 0, %begin_names ], [ %next_k, %take ]
  %known = phi i64 [ %filled_more, %begin_names ], [ %known_more, %take ]
  %more_names = icmp ult i64 %k, %name_count
  br i1 %more_names, label %look, label %taken
look:
  %name_at = getelementptr ptr, ptr %first_name, i64 %k
  %its_name = load ptr, ptr %name_at
  br label %keyword
keyword:
  %j = phi i64 [ 0, %look ], [ %next_j, %differs ]
  %more_keywords = icmp ult i64 %j, %keyword_count
  br i1 %more_keywords, label %compare, label %no
compare:
  %keyword_at = getelementptr %Keyword, ptr %keywords, i64 %j
  %keyword_name = get Keyword.name %keyword_at
  %same = icmp eq ptr %keyword_name, %its_name
  br i1 %same, label %fill, label %differs
differs:
  %next_j = add i64 %j, 1
  br label %keyword
fill:
  %named = get Keyword.argument %keyword_at
  %named_bit = shl i64 1, %named
  %again = and i64 %known, %named_bit
  %new = icmp eq i64 %again, 0
  br i1 %new, label %take, label %no
take:
  %known_more = or i64 %known, %named_bit
  %given_at = getelementptr ptr, ptr %first_value, i64 %k
  %given = load ptr, ptr %given_at
  %named_at = getelementptr ptr, ptr %objects, i64 %named
  store ptr %given, ptr %named_at
  %next_k = add i64 %k, 1
  br label %name

taken:
  %arguments = phi i64 [ %filled_more, %by_name ], [ %known, %name ]
  %beyond = lshr i64 %arguments, {_PLACES["out"] + 1}
  %plain = icmp eq i64 %beyond, 0
  br i1 %plain, label %yes, label %epilogue
epilogue:
  %good = call i1 @take_epilogue(ptr %call)
  ret i1 %good
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _take_array(name: str, after: str, before: str) -> str:
    """Take one array, if it is given: from the label ``take_name`` on to ``after``, with the form so far."""
    return f"""
take_{name}:
  %form_{name} = phi i64 {before}
  %{name}_at = getelementptr ptr, ptr %objects, i64 {_PLACES[name]}
  %{name} = load ptr, ptr %{name}_at
  %{name}_given = call i1 @is_given(ptr %{name})
  br i1 %{name}_given, label %add_{name}, label %{after}
add_{name}:
  call void @add_extra(ptr %call, ptr %{name})
  %form_{name}_more = or i64 %form_{name}, {_form(name)}
  br label %{after}
"""


# NOTE: as tilewise.epilogue.express reads them: alpha of 1 is none, beta of 1 or None is none, and with beta of 0
# there is no c, whatever it is.
_TAKE_EPILOGUE = f"""
define internal i1 @take_epilogue(ptr %call) #2 {{
entry:
  %number_at = alloca double
  %objects = at Call.objects %call
  %key = at Call.key %call
  %values = at Call.values %call
{
    "".join(
        f'''  %zero{i} = getelementptr <8 x i64>, ptr %key, i64 {i}
  store <8 x i64> zeroinitializer, ptr %zero{i}, align 64
'''
        for i in range(PLAIN_WORDS // 8, KEY_WORDS // 8)
    )
}  %extra_values = getelementptr i64, ptr %values, i64 {FIRST_EXTRA}
  store <{MAX_EXTRAS} x i64> zeroinitializer, ptr %extra_values, align 32
  br label %take_offsets
{_take_array("offsets", "take_alpha", "[ 0, %entry ]")}
take_alpha:
  %form_alpha = phi i64 [ 0, %take_offsets ], [ %form_offsets_more, %add_offsets ]
  %alpha_at = getelementptr ptr, ptr %objects, i64 {_PLACES["alpha"]}
  %alpha = load ptr, ptr %alpha_at
  %no_alpha = icmp eq ptr %alpha, null
  br i1 %no_alpha, label %take_beta, label %read_alpha
read_alpha:
  %alpha_read = call i32 @read_number(ptr %alpha, ptr %number_at)
  %alpha_good = icmp eq i32 %alpha_read, 1
  br i1 %alpha_good, label %compare_alpha, label %no
compare_alpha:
  %alpha_value = load double, ptr %number_at
  %alpha_counts = fcmp une double %alpha_value, 1.0
  br i1 %alpha_counts, label %add_alpha, label %take_beta
add_alpha:
  call void @add_number(ptr %call, double %alpha_value)
  %form_alpha_more = or i64 %form_alpha, {_form("alpha")}
  br label %take_beta

take_beta:
  %form_beta = phi i64 [ %form_alpha, %take_alpha ], [ %form_alpha, %compare_alpha ], [ %form_alpha_more, %add_alpha ]
  %beta_at = getelementptr ptr, ptr %objects, i64 {_PLACES["beta"]}
  %beta = load ptr, ptr %beta_at
  %beta_given = call i1 @is_given(ptr %beta)
  %c_of_beta_at = getelementptr ptr, ptr %objects, i64 {_PLACES["c"]}
  %c_of_beta = load ptr, ptr %c_of_beta_at
  %has_c = call i1 @is_given(ptr %c_of_beta)
  br i1 %beta_given, label %read_beta, label %take_c
read_beta:
  %beta_read = call i32 @read_number(ptr %beta, ptr %number_at)
  %beta_good = icmp eq i32 %beta_read, 1
  br i1 %beta_good, label %compare_beta, label %no
compare_beta:
  %beta_value = load double, ptr %number_at
  %beta_zero = fcmp oeq double %beta_value, 0.0
  br i1 %beta_zero, label %take_bias, label %beta_counts
beta_counts:
  br i1 %has_c, label %scale, label %no
scale:
  %beta_one = fcmp oeq double %beta_value, 1.0
  br i1 %beta_one, label %take_c, label %add_beta
add_beta:
  call void @add_number(ptr %call, double %beta_value)
  %form_beta_more = or i64 %form_beta, {_form("beta")}
  br label %take_c
{
    _take_array(
        "c", "take_bias", "[ %form_beta, %take_beta ], [ %form_beta, %scale ], [ %form_beta_more, %add_beta ]"
    )
}
{
    _take_array(
        "bias",
        "take_residual",
        "[ %form_beta, %compare_beta ], [ %form_c, %take_c ], [ %form_c_more, %add_c ]",
    )
}
{_take_array("residual", "take_activation", "[ %form_bias, %take_bias ], [ %form_bias_more, %add_bias ]")}
take_activation:
  %form = phi i64 [ %form_residual, %take_residual ], [ %form_residual_more, %add_residual ]
  %activation_at = getelementptr ptr, ptr %objects, i64 {_PLACES["activation"]}
  %activation = load ptr, ptr %activation_at
  %activation_given = call i1 @is_given(ptr %activation)
  br i1 %activation_given, label %name_activation, label %take_arithmetic
name_activation:
  %text = call ptr @find_activation(ptr %activation)
  set Call.text %call = %text
  %unknown_activation = icmp eq ptr %text, null
  br i1 %unknown_activation, label %no, label %take_arithmetic
take_arithmetic:
  %arithmetic_at = getelementptr ptr, ptr %objects, i64 {_PLACES["arithmetic"]}
  %arithmetic = load ptr, ptr %arithmetic_at
  %arithmetic_given = call i1 @is_given(ptr %arithmetic)
  br i1 %arithmetic_given, label %name_arithmetic, label %take_last
name_arithmetic:
  %arithmetic_found = call i64 @find_arithmetic(ptr %arithmetic)
  %unknown_arithmetic = icmp eq i64 %arithmetic_found, 0
  br i1 %unknown_arithmetic, label %no, label %take_last
take_last:
  %arithmetic_bits = phi i64 [ 0, %take_arithmetic ], [ %arithmetic_found, %name_arithmetic ]
  %epilogue_at = getelementptr ptr, ptr %objects, i64 {_PLACES["epilogue"]}
  %epilogue = load ptr, ptr %epilogue_at
  %epilogue_given = call i1 @is_given(ptr %epilogue)
  br i1 %epilogue_given, label %alone, label %finish
finish:
  %no_form = icmp eq i64 %form, 0
  %no_activation = xor i1 %activation_given, true
  %plain = and i1 %no_form, %no_activation
  %form_changed = or i64 %form, {_form("not_plain")}
  %form_of_epilogue = select i1 %plain, i64 0, i64 %form_changed
  %form_found = or i64 %form_of_epilogue, %arithmetic_bits
  set Call.form %call = %form_found
  ret i1 true
alone:
  %usual = and i64 %form, {_form("c", "bias", "residual", "alpha", "beta")}
  %nothing_usual = icmp eq i64 %usual, 0
  %no_activation_either = xor i1 %activation_given, true
  %is_alone = and i1 %nothing_usual, %no_activation_either
  br i1 %is_alone, label %take_object, label %no
take_object:
  %form_of_object = or i64 %form, %arithmetic_bits
  %taken = call i1 @take_object(ptr %call, ptr %epilogue, i64 %form_of_object)
  ret i1 %taken
no:
  ret i1 false
}}
"""

# What tw.epilogue gives: its expression is compared as an object, and so are the names that it gives.
_TAKE_OBJECT = f"""
define internal i1 @take_object(ptr %call, ptr %epilogue, i64 %form) #2 {{
entry:
  %number_at = alloca double
  %position_at = alloca i64
  %name_at = alloca ptr
  %value_at = alloca ptr
  %type = get Object.type %epilogue
  %known_type = get State.epilogue_type @tw_state
  %is_known = icmp eq ptr %type, %known_type
  br i1 %is_known, label %open, label %no
open:
  %expression_slot = get State.expression_slot @tw_state
  %expression_at = getelementptr i8, ptr %epilogue, i64 %expression_slot
  %expression = load ptr, ptr %expression_at
  set Call.text %call = %expression
  %given_slot = get State.given_slot @tw_state
  %given_at = getelementptr i8, ptr %epilogue, i64 %given_slot
  %given = load ptr, ptr %given_at
  %no_given = icmp eq ptr %given, null
  br i1 %no_given, label %no, label %see_dict
see_dict:
  %given_type = get Object.type %given
  %dict_type = get State.dict_type @tw_state
  %is_dict = icmp eq ptr %given_type, %dict_type
  br i1 %is_dict, label %begin, label %no
begin:
  store i64 0, ptr %position_at
  %key = at Call.key %call
  %names = getelementptr i64, ptr %key, i64 {PLAIN_WORDS}
  %held = at Call.held %call
  %next_item = get State.next_item @tw_state
  br label %next
next:
  %count = phi i64 [ 0, %begin ], [ %count_after, %taken ]
  %arrays = phi i64 [ 0, %begin ], [ %arrays_after, %taken ]
  %more = call i32 %next_item(ptr %given, ptr %position_at, ptr %name_at, ptr %value_at)
  %done = icmp eq i32 %more, 0
  br i1 %done, label %finish, label %one
one:
  %fits = icmp ult i64 %count, {MAX_GIVEN}
  br i1 %fits, label %read, label %no
read:
  %name = load ptr, ptr %name_at
  %name_word = getelementptr ptr, ptr %names, i64 %count
  store ptr %name, ptr %name_word
  %value = load ptr, ptr %value_at
  %number_read = call i32 @read_number(ptr %value, ptr %number_at)
  switch i32 %number_read, label %no [
    i32 0, label %array
    i32 1, label %number
  ]
number:
  %number_value = load double, ptr %number_at
  call void @add_number(ptr %call, double %number_value)
  br label %taken
array:
  %extras = get Call.extra_count %call
  %extra_fits = icmp ult i64 %extras, {MAX_EXTRAS}
  br i1 %extra_fits, label %hold, label %no
hold:
  ; NOTE: an argument of the call lives as long as it; what the dictionary has may be taken out meanwhile.
  %add_reference = get State.add_reference @tw_state
  call void %add_reference(ptr %value)
  %held_count = get Call.held_count %call
  %held_at = getelementptr ptr, ptr %held, i64 %held_count
  store ptr %value, ptr %held_at
  %held_after = add i64 %held_count, 1
  set Call.held_count %call = %held_after
  call void @add_extra(ptr %call, ptr %value)
  %array_bit = shl i64 {_form("arrays")}, %count
  %arrays_more = or i64 %arrays, %array_bit
  br label %taken
taken:
  %arrays_after = phi i64 [ %arrays, %number ], [ %arrays_more, %hold ]
  %count_after = add i64 %count, 1
  br label %next
finish:
  %count_bits = shl i64 %count, {FORM_BITS["count"]}
  %form_arrays = or i64 %form, %arrays
  %form_count = or i64 %form_arrays, %count_bits
  %form_found = or i64 %form_count, {_form("not_plain", "epilogue")}
  set Call.form %call = %form_found
  ret i1 true
no:
  ret i1 false
}}

define internal void @drop_held(ptr %call) #1 {{
entry:
  %count = get Call.held_count %call
  %held = at Call.held %call
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %drop ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %drop, label %end
drop:
  %held_at = getelementptr ptr, ptr %held, i64 %i
  %object = load ptr, ptr %held_at
  %drop_reference = get State.drop_reference @tw_state
  call void %drop_reference(ptr %object)
  %after = add i64 %i, 1
  br label %next
end:
  ret void
}}
"""

ARGUMENT_TEXT = (
    _APPEND + _FIND_ACTIVATION + _FIND_ARITHMETIC + _TAKE_OBJECT + _TAKE_EPILOGUE + _TAKE_ARGUMENTS
)
