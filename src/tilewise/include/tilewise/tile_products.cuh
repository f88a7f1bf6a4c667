// How a warpgroup multiplies its part of a tile (compute capability 9.0): step by step of K, as the stages of a ring fill
// and are emptied again.
#pragma once

#include <tilewise/ring.cuh>
#include <tilewise/sum_registers.cuh>
#include <tilewise/term_scales.cuh>
#include <tilewise/transposed_tile.cuh>
#include <tilewise/wgmma.cuh>
#include <tilewise/widened_tile.cuh>

// Where the sums of a step become others: of integers, which become numbers.
template <bool INTEGERS, typename Register> struct RegisterOf {
    using Type = Register;
};
template <typename Register> struct RegisterOf<true, Register> {
    using Type = int;
};

// Form says what a kernel has: elements of A and B, and how they lie; a warpgroup's part of a tile, ROWS_64 times 64 rows by
// COLUMNS; how many blocks share a stage; Shared, with the stages, their ring and scales; what sums are kept in.
template <typename Form> struct TileProducts {
    using Shared = typename Form::Shared;
    using Turn = typename Form::Turn;
    using Steps = typename Form::Steps;
    using SumRegister = typename Form::SumRegister;
    using Scales = TermScales<Form::SCALED_ROWS, Form::SCALED_COLUMNS>;
    using Elements = typename TypesOf<typename Form::ElementA, typename Form::ElementB>::Both;
    static constexpr unsigned ROWS_64 = Form::ROWS_64, COLUMNS = Form::COLUMNS, ROWS = 64; // of an instruction
    static constexpr unsigned STEP_BYTES = 128; // of a row
    // The tensor cores keep few places of sums of 8-bit floating-point numbers.
    static constexpr bool WIDENS = sizeof(typename Form::ElementA) < sizeof(typename Form::ElementB);
    static constexpr bool TRANSPOSES = sizeof(typename Form::ElementA) == 4 && !Form::A_ALONG_K;
    using WidenedHalf = WidenedRows<typename Form::ElementB, typename Form::ElementA>; // of 64 rows
    static constexpr bool IN_STEPS = !WIDENS && sizeof(typename Form::ElementA) == 1 && !SAME<SumRegister, int>;
    using ProductRegister = typename RegisterOf<IN_STEPS && SAME<typename Form::ElementA, int8>, SumRegister>::Type;

    struct Sums {
        SumRegister at[ROWS_64][COLUMNS / 2 / SUMS_IN<SumRegister>];
    };

    // Adds up all steps, of rows from `begin` of the tile on, which lies at `row` and `column`. Then it is the turn of the
    // warpgroup `next`, if that is one.
    static __device__ void add_up(Shared &shared, Sums &sums, unsigned begin, Steps steps, Turn &turn, unsigned next,
                                  const Scales &scales, unsigned row, unsigned column)
    {
        if constexpr (WIDENS && Scales::ANY)
            add_widened_scaled(shared, sums, begin, steps, turn, scales, row, column);
        else if constexpr (WIDENS)
            add_widened(shared, sums, begin, steps.count(), turn);
        else if constexpr (TRANSPOSES)
            add_transposed(shared, sums, begin, steps.count(), turn);
        else if constexpr (IN_STEPS && Scales::ANY)
            add_scaled(shared, sums, begin, steps, turn, scales, row, column);
        else if constexpr (IN_STEPS)
            add_in_steps(shared, sums, begin, steps.count(), turn);
        else
            add_at_once(shared, sums, begin, steps.count(), turn, next);
    }

  private:
    // Each warp says that it has read a slot, to every block that may write to it.
    static __device__ void say_empty(Shared &shared, unsigned slot)
    {
        const unsigned lane = threadIdx.x % 32;
        if (Form::SHARERS == 1) {
            if (lane == 0) shared.ring.empty[slot].arrive();
        } else if (lane < Form::SHARERS) {
            shared.ring.empty[slot].arrive_in(lane);
        }
    }

    // A warpgroup multiplies. One step's instructions are under way while it waits for the next one's bytes.
    // Then it is `next`'s turn, if that is one.
    static __device__ void add_at_once(Shared &shared, Sums &sums, unsigned begin, unsigned steps, Turn &turn, unsigned next)
    {
        unsigned before = 0; // the slot of the step before
#pragma unroll 1
        for (unsigned step = 0; step < steps; ++step, turn.next()) {
            const auto &stage = shared.stages[turn.slot];
            shared.ring.wait_until_full(turn);
            const auto b = stage.b[0].descriptor(0);
            wgmma::fence();
#pragma unroll
            for (unsigned i = 0; i < ROWS_64; ++i)
                wgmma::multiply_add<Elements, Form::A_ALONG_K, Form::B_ALONG_N>(sums.at[i],
                                                                                stage.a.descriptor(begin + i * ROWS), b);
            wgmma::commit();
            wgmma::wait<1>(); // the step before this one has been read, as far as this warp goes
            if (step > 0) say_empty(shared, before);
            before = turn.slot;
        }
        Form::give_turn(next);
        wgmma::wait<0>();
        if (steps > 0) say_empty(shared, before);
    }

    // Starts the products of a step, of 64 rows from `row` of the tile on.
    template <typename Stage, unsigned COUNT>
    static __device__ void start_products(ProductRegister (&products)[COUNT], const Stage &stage, unsigned row)
    {
        wgmma::fence();
        wgmma::multiply<Elements, true, false>(products, stage.a.descriptor(row), stage.b[0].descriptor(0));
        wgmma::commit();
    }

    // The same where the tensor cores keep too few places of sums: those of each step are added to the others here. One
    // instruction's rows after another, so that their sums take the same registers; meanwhile another warpgroup multiplies.
    static __device__ void add_in_steps(Shared &shared, Sums &sums, unsigned begin, unsigned steps, Turn &turn)
    {
        SumRegister products[COLUMNS / 2];
#pragma unroll 1
        for (unsigned step = 0; step < steps; ++step, turn.next()) {
            const auto &stage = shared.stages[turn.slot];
            shared.ring.wait_until_full(turn);
#pragma unroll
            for (unsigned i = 0; i < ROWS_64; ++i) {
                start_products(products, stage, begin + i * ROWS);
                wgmma::wait<0>();
                if (i + 1 == ROWS_64) say_empty(shared, turn.slot);
#pragma unroll
                for (unsigned j = 0; j < COLUMNS / 2; ++j)
                    sums.at[i][j] += products[j];
            }
        }
    }

    // The same where terms have scales: those of the next step are on their way meanwhile.
    static __device__ void add_scaled(Shared &shared, Sums &sums, unsigned begin, Steps steps, Turn &turn,
                                      const Scales &scales, unsigned row, unsigned column)
    {
        using OfStage = typename Form::StageScales;
        using Next = SumScales<OfStage, Form::SCALED_ROWS, Form::SCALED_COLUMNS, ROWS_64, COLUMNS>;
        if (steps.begin == steps.end) return;
        ProductRegister products[COLUMNS / 2];
        Next next(scales, row + begin, column, steps.begin);
#pragma unroll 1
        for (unsigned step = steps.begin; step < steps.end; ++step, turn.next()) {
            const auto &stage = shared.stages[turn.slot];
            const Next now = next;
            next = Next(scales, row + begin, column, min(step + 1, steps.end - 1));
            shared.ring.wait_until_full(turn);
#pragma unroll
            for (unsigned i = 0; i < ROWS_64; ++i) {
                start_products(products, stage, begin + i * ROWS);
                wgmma::wait<0>();
                if (!OfStage::ANY && i + 1 == ROWS_64) say_empty(shared, turn.slot);
                now.add(sums.at[i], products, i, begin, column, shared.scales[turn.slot]);
            }
            if (OfStage::ANY) say_empty(shared, turn.slot);
        }
    }

    // Starts the products of one half of a step with rows of A that become wider on their way, through registers.
    // ADDS: to what the sums were before.
    template <bool ADDS, unsigned COUNT>
    static __device__ void start_half(SumRegister (&sums)[COUNT], const WidenedHalf &rows, unsigned long long b)
    {
        using Element = typename Form::ElementB;
        wgmma::fence();
        if (ADDS)
            wgmma::multiply_add<Element, Form::B_ALONG_N>(sums, rows.at, b);
        else
            wgmma::multiply<Element, Form::B_ALONG_N>(sums, rows.at, b);
        wgmma::commit();
    }

    // Adds up where A's rows lie across K: a step's instructions are under way while the next one's rows are read.
    // NOTE: two steps, of registers of their own, in one turn of the loop. Where the loop may end between them the compiler
    // serialises the products.
    static __device__ void add_transposed(Shared &shared, Sums &sums, unsigned begin, unsigned steps, Turn &turn)
    {
        unsigned before = 0; // the slot of the step before
        if (steps % 2 == 1) {
            start_transposed(shared, sums, begin, turn);
            wgmma::wait<0>();
            before = turn.slot, turn.next();
        }
#pragma unroll 1
        for (unsigned step = steps % 2; step < steps; step += 2)
#pragma unroll
            for (unsigned i = 0; i < 2; ++i, turn.next()) {
                start_transposed(shared, sums, begin, turn);
                wgmma::wait<1>(); // the step before this one
                if (step + i > 0) say_empty(shared, before);
                before = turn.slot;
            }
        wgmma::wait<0>();
        if (steps > 0) say_empty(shared, before);
    }

    // Waits for a step, and starts its products.
    static __device__ void start_transposed(Shared &shared, Sums &sums, unsigned begin, const Turn &turn)
    {
        using Element = typename Form::ElementB;
        const auto &stage = shared.stages[turn.slot];
        shared.ring.wait_until_full(turn);
        TransposedRows rows[ROWS_64];
#pragma unroll
        for (unsigned i = 0; i < ROWS_64; ++i)
            rows[i].read(stage.a.elements, begin + i * ROWS);
        wgmma::fence();
#pragma unroll
        for (unsigned i = 0; i < ROWS_64; ++i)
            wgmma::multiply_add<Element, Form::B_ALONG_N>(sums.at[i], rows[i].at, stage.b[0].descriptor(0));
        wgmma::commit();
    }

    // Adds up rows of A that become wider on their way: half a step's instructions are under way while the other half's rows
    // are widened.
    static __device__ void add_widened(Shared &shared, Sums &sums, unsigned begin, unsigned steps, Turn &turn)
    {
        static_assert(ROWS_64 == 1, "registers of two halves");
        const typename WidenedHalf::Widen widen;
        unsigned before = 0; // the slot of the step before
#pragma unroll 1
        for (unsigned step = 0; step < steps; ++step, turn.next()) {
            const auto &stage = shared.stages[turn.slot];
            shared.ring.wait_until_full(turn);
#pragma unroll
            for (unsigned half = 0; half < Form::TILES_OF_B; ++half) {
                const WidenedHalf rows(widen, &stage.a.elements[begin * STEP_BYTES], half);
                start_half<true>(sums.at[0], rows, stage.b[half].descriptor(0));
                wgmma::wait<1>(); // the half before this one
                if (half == 0 && step > 0) say_empty(shared, before);
            }
            before = turn.slot;
        }
        wgmma::wait<0>();
        if (steps > 0) say_empty(shared, before);
    }

    // The same where terms have scales: a step's sums are added to the others while the next one's first rows are widened.
    static __device__ void add_widened_scaled(Shared &shared, Sums &sums, unsigned begin, Steps steps, Turn &turn,
                                              const Scales &scales, unsigned row, unsigned column)
    {
        using OfStage = typename Form::StageScales;
        using Next = SumScales<OfStage, Form::SCALED_ROWS, Form::SCALED_COLUMNS, 1, COLUMNS>;
        if (steps.begin == steps.end) return;
        const typename WidenedHalf::Widen widen;
        SumRegister products[COLUMNS / 2] = {}; // NOTE: or the compiler serialises the products of 16 columns
        Next now(scales, row + begin, column, steps.begin);
        unsigned before = 0;
#pragma unroll 1
        for (unsigned step = steps.begin; step < steps.end; ++step, turn.next()) {
            const auto &stage = shared.stages[turn.slot];
            const Next next(scales, row + begin, column, step);
            shared.ring.wait_until_full(turn);
            const WidenedHalf first(widen, &stage.a.elements[begin * STEP_BYTES], 0);
            if (step > steps.begin) add_products(shared, sums, products, now, begin, column, before);
            start_half<false>(products, first, stage.b[0].descriptor(0));
            const WidenedHalf second(widen, &stage.a.elements[begin * STEP_BYTES], 1);
            start_half<true>(products, second, stage.b[1].descriptor(0));
            wgmma::wait<1>(); // the registers of the first half, which the next step's rows go to
            now = next, before = turn.slot;
        }
        add_products(shared, sums, products, now, begin, column, before);
    }

    // Waits for the products of the step in a slot, and adds them to the others.
    template <typename StepScales, unsigned COUNT>
    static __device__ void add_products(Shared &shared, Sums &sums, SumRegister (&products)[COUNT], const StepScales &scales,
                                        unsigned begin, unsigned column, unsigned slot)
    {
        wgmma::wait<0>();
        if (!Form::StageScales::ANY) say_empty(shared, slot);
        scales.add(sums.at[0], products, 0, begin, column, shared.scales[slot]);
        if (Form::StageScales::ANY) say_empty(shared, slot);
    }
};
