//! Handlers: the work of a hooked function, for the [`table`](crate::table) to export under the
//! function's names and to call by its number.

/// A handler, a type without values that has the function's name.
pub(crate) trait HookHandler {
    /// The function's type.
    type Function: FunctionSignature;

    /// The hidden function of this name.
    fn hidden() -> Option<Self::Function>;
}

/// The types of a C function's arguments, called as the [`table`](crate::table) calls the
/// arguments, and of its result. Those that it has not are empty.
#[allow(non_camel_case_types, reason = "named as the arguments are")]
pub(crate) trait FunctionSignature {
    type a;
    type b;
    type c;
    type d;
    type e;
    type f;
    type Output;
}

macro_rules! signatures {
    ($(($($argument:ident)*) ($($none:ident)*);)*) => {$(
        #[allow(non_camel_case_types, reason = "named as the arguments are")]
        impl<$($argument,)* R> FunctionSignature for unsafe extern "C-unwind" fn($($argument),*) -> R {
            $(type $argument = $argument;)*
            $(type $none = ();)*
            type Output = R;
        }
    )*};
}

signatures! {
    () (a b c d e f);
    (a) (b c d e f);
    (a b) (c d e f);
    (a b c) (d e f);
    (a b c d) (e f);
    (a b c d e) (f);
    (a b c d e f) ();
}

/// Defines handlers, each of a function:
///
/// * `missing`: what is returned if there is no hidden function;
/// * `plain if`: the hidden function is called and nothing else happens (a tail call);
/// * `else`: what happens otherwise, with the hidden function in a variable.
///
/// A handler's `over` goes on to a function that its caller gives. A system call that is made by
/// its number must not come back to the hidden function of that name, which may be the one that
/// makes it.
macro_rules! handlers {
    ($(
        fn $name:ident $arguments:tt -> $result:ty;
        missing $missing:expr;
        plain if $plain:expr;
        else |$real:ident| $otherwise:expr;
    )*) => {$(
        $crate::handler::handler! {
            $name $arguments -> $result; $missing; $plain; $real; $otherwise
        }
    )*};
}

macro_rules! handler {
    (
        $name:ident ($($argument:ident: $type:ty),*) -> $result:ty;
        $missing:expr; $plain:expr; $real:ident; $otherwise:expr
    ) => {
        #[allow(non_camel_case_types, reason = "named as the function is")]
        pub(crate) enum $name {}

        impl $crate::handler::HookHandler for $name {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;

            fn hidden() -> Option<Self::Function> {
                // SAFETY: the signatures are those of the manual pages.
                unsafe { $crate::real::hidden::$name.get() }
            }
        }

        #[allow(unused_variables, reason = "not each part needs all arguments")]
        impl $name {
            #[inline(always)]
            pub(crate) fn is_plain($($argument: $type),*) -> bool {
                $plain
            }

            pub(crate) fn missing($($argument: $type),*) -> $result {
                $missing
            }

            #[inline]
            pub(crate) unsafe fn over(
                $real: <$name as $crate::handler::HookHandler>::Function,
                $($argument: $type),*
            ) -> $result {
                if $plain {
                    // SAFETY: it is called with what our caller wanted to call it with.
                    return unsafe { $real($($argument),*) };
                }
                $otherwise
            }
        }
    };
}

pub(crate) use {handler, handlers};
