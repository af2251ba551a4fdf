#pragma once

#include <cstdint>

#include "engine/formats/dequant.h"
#include "engine/formats/weight_source.h"
#include "kernels/packing.h"

namespace draftscope {

/// An optional interface of a WeightSource that returns 4-bit rows without decoding them to floats. Each
/// group of 32 weights has a scale and a minimum (Q4_0, Q4_1).
class Int4Rows {
  public:
    virtual ~Int4Rows() = default;
    /// Unpacks a row's stored bytes; returns false for other tensor types. The buffers in `out` must fit the
    /// row.
    virtual bool decode_int4_row(const TensorInfo& tensor, const std::uint8_t* bytes,
                                 const kernels::Int4Row& out) const = 0;
};

/// Unpacks a row of Q4_0 or Q4_1 without converting to float; returns false for other types.
bool unpack_int4(const TensorType& type, const std::uint8_t* data, const kernels::Int4Row& out);

}  // namespace draftscope
