#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace draftscope {

/// Class of an error. The command line converts it to the exit code.
enum class ErrorKind {
    bad_input,  ///< wrong usage, unreadable or impossible input: exit code 2
    failed,     ///< the operation failed (disk full, out of memory): exit code 1
    cancelled,  ///< the user asked to stop: exit code 130
};

/// An error with a message of one line for the user: file, field, value found, and what to do.
struct Error {
    ErrorKind kind = ErrorKind::failed;
    std::string message;
};

template <typename... Args>
[[nodiscard]] Error bad_input(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::bad_input, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename... Args>
[[nodiscard]] Error failed(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::failed, fmt::format(text, std::forward<Args>(args)...)};
}

/// A value or an Error. Every public function that can fail returns a Result; exceptions do not cross module
/// boundaries.
template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
    template <typename U>
    requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::decay_t<U>, T> &&
             !std::is_same_v<std::decay_t<U>, Error> && !std::is_same_v<std::decay_t<U>, Result>)
        Result(U&& value)
        : state_(std::in_place_index<0>, std::forward<U>(value)) {}

    explicit operator bool() const { return state_.index() == 0; }
    bool ok() const { return state_.index() == 0; }
    T& value() & { return std::get<0>(state_); }
    const T& value() const& { return std::get<0>(state_); }
    T&& value() && { return std::get<0>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const { return std::get<1>(state_); }

  private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}
    explicit operator bool() const { return !error_.has_value(); }
    bool ok() const { return !error_.has_value(); }
    const Error& error() const { return *error_; }

  private:
    std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace draftscope

#define DS_CONCAT_INNER(a, b) a##b
#define DS_CONCAT(a, b) DS_CONCAT_INNER(a, b)

/// Returns the error of a Status or Result expression from the enclosing function.
#define DS_TRY(expression)                                                            \
    do {                                                                              \
        if (auto ds_status = (expression); !ds_status.ok()) return ds_status.error(); \
    } while (false)

/// Binds the value of a Result or returns its error: `DS_ASSIGN(auto x, make_x());`.
#define DS_ASSIGN(declaration, expression)                                                     \
    auto DS_CONCAT(ds_result_, __LINE__) = (expression);                                       \
    if (!DS_CONCAT(ds_result_, __LINE__).ok()) return DS_CONCAT(ds_result_, __LINE__).error(); \
    declaration = std::move(DS_CONCAT(ds_result_, __LINE__)).value()
