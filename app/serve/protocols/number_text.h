// Numbers of answers as text.
#pragma once

#include <span>
#include <string>

namespace bert {

/// Appends the shortest text that gives `value` back when it is read as fp32; null for what JSON has no number for.
void append_number(std::string& out, float value);

/// Appends a list of JSON.
void append_numbers(std::string& out, std::span<const float> values);

/// The bytes of fp32 numbers, little-endian, in base64 with padding. Source: RFC 4648, section 4.
std::string base64_of(std::span<const float> values);

}  // namespace bert
