#pragma once

#include <cstdint>

#include "engine/model/dequant.h"
#include "engine/model/weight_source.h"
#include "kernels/int4.h"

namespace draftscope {

/// What a WeightSource is besides, when it can hand out rows as they are stored: four bits a weight with a
/// scale and a minimum per 32 (Q4_0, Q4_1).
class Int4Rows {
  public:
    virtual ~Int4Rows() = default;
    /// Of a row's stored bytes; false for a tensor stored in another way. The buffers are of the row's size.
    virtual bool decode_int4_row(const TensorInfo& tensor, const std::uint8_t* bytes,
                                 const kernels::Int4Row& out) const = 0;
};

/// A row of Q4_0 or Q4_1 as it is, without a float in between; false for other types.
bool unpack_int4(const TensorType& type, const std::uint8_t* data, const kernels::Int4Row& out);

}  // namespace draftscope
