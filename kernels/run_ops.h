#pragma once

#include <span>

#include "kernels/backend.h"

// For DS_DEVICE_OPS in an implementation of Backend: enqueue(op) calls run(op, name) at once.
#define DS_RUN_OP(name, Op)               \
    void enqueue(const Op& op) override { \
        if (!has_error()) run(op, #name); \
    }
#define DS_RUN_OP_BATCH(name, Op)                    \
    void enqueue(std::span<const Op> ops) override { \
        if (!has_error()) run(ops, #name);           \
    }
