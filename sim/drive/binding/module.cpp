// SPDX-License-Identifier: Apache-2.0
// kvdrive._native: the engines and the drive as Python objects.
#include <nanobind/nanobind.h>

#include "binding/binding.hpp"

NB_MODULE(_native, m) {
  m.doc() = "Compute engines and the software drive.";
  kvdrive::bind_engine(m);
  kvdrive::bind_disk(m);
  kvdrive::bind_drive(m);
  kvdrive::bind_formats(m);
  kvdrive::bind_nvme(m);
  kvdrive::bind_tcp(m);
  kvdrive::bind_openmp(m);
  kvdrive::bind_passthrough(m);
  kvdrive::bind_weights(m);
}
