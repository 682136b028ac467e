// What Python calls: functions of plain C that give nothing, or say what was wrong with a launch.
#pragma once

#include <exception>
#include <string>

template <class F>
const char* guarded(F run) {
  static std::string failure;
  try {
    run();
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}

#define TOS_ENTRY extern "C" __attribute__((visibility("default"))) const char*
