#pragma once

#include <array>
#include <cstddef>

namespace braid {

// An array with an element for each value 0..N-1 of the enumeration E.
template <class E, class T, size_t N>
struct EnumArray : std::array<T, N> {
  using std::array<T, N>::operator[];
  constexpr T& operator[](E e) { return (*this)[static_cast<size_t>(e)]; }
  constexpr const T& operator[](E e) const { return (*this)[static_cast<size_t>(e)]; }
};

}  // namespace braid
