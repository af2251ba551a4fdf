#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "base/result.h"

namespace draftscope {

/// For ASSERT_TRUE and EXPECT_TRUE: a failure shows the error's message.
template <typename T>
::testing::AssertionResult is_ok(const Result<T>& result) {
    if (result.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << result.error().message;
}

/// Returns the value of a result. An error ends the test with its message.
template <typename T>
T require(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.error().message);
    return std::move(result).value();
}

}  // namespace draftscope
