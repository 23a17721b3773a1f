// SPDX-License-Identifier: Apache-2.0
// kvdrive._pyxrt: the names of the vendor's module pyxrt over the distribution's runtime, which comes without it.
//
// The subset of XRT 2.13 that kvdrive's Python code and examples use. A program runs with either module.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>

#include "experimental/xrt_xclbin.h"
#include "xrt/xrt_bo.h"
#include "xrt/xrt_device.h"
#include "xrt/xrt_kernel.h"

namespace nb = nanobind;

namespace {

// The bytes of an object with the buffer protocol.
class View {
 public:
  View(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~View() { PyBuffer_Release(&view_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  void* data() const { return view_.buf; }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// Whole numbers keep 64 bits, so that addresses and sizes of a descriptor fit.
void set_argument(xrt::run& run, int index, nb::handle value) {
  if (nb::isinstance<xrt::bo>(value)) {
    run.set_arg(index, nb::cast<xrt::bo&>(value));
  } else if (nb::isinstance<nb::float_>(value)) {
    run.set_arg(index, nb::cast<float>(value));
  } else {
    const auto number = nb::cast<std::int64_t>(value);
    run.set_arg(index, number);
  }
}

xrt::run call(xrt::kernel& kernel, const nb::args& arguments) {
  xrt::run run(kernel);
  int index = 0;
  for (const nb::handle value : arguments) set_argument(run, index++, value);
  run.start();
  return run;
}

nb::object map(xrt::bo& bo) {
  return nb::steal(PyMemoryView_FromMemory(bo.map<char*>(), static_cast<Py_ssize_t>(bo.size()), PyBUF_WRITE));
}

}  // namespace

NB_MODULE(_pyxrt, m) {
  m.doc() = "The names of the vendor's pyxrt, over the XRT of this machine.";

  nb::enum_<ert_cmd_state>(m, "ert_cmd_state")
      .value("ERT_CMD_STATE_NEW", ERT_CMD_STATE_NEW)
      .value("ERT_CMD_STATE_QUEUED", ERT_CMD_STATE_QUEUED)
      .value("ERT_CMD_STATE_RUNNING", ERT_CMD_STATE_RUNNING)
      .value("ERT_CMD_STATE_COMPLETED", ERT_CMD_STATE_COMPLETED)
      .value("ERT_CMD_STATE_ERROR", ERT_CMD_STATE_ERROR)
      .value("ERT_CMD_STATE_ABORT", ERT_CMD_STATE_ABORT)
      .value("ERT_CMD_STATE_SUBMITTED", ERT_CMD_STATE_SUBMITTED)
      .value("ERT_CMD_STATE_TIMEOUT", ERT_CMD_STATE_TIMEOUT)
      .value("ERT_CMD_STATE_NORESPONSE", ERT_CMD_STATE_NORESPONSE);
  nb::enum_<xclBOSyncDirection>(m, "xclBOSyncDirection")
      .value("XCL_BO_SYNC_BO_TO_DEVICE", XCL_BO_SYNC_BO_TO_DEVICE)
      .value("XCL_BO_SYNC_BO_FROM_DEVICE", XCL_BO_SYNC_BO_FROM_DEVICE);
  nb::enum_<xrt::info::device>(m, "xrt_info_device")
      .value("bdf", xrt::info::device::bdf)
      .value("name", xrt::info::device::name);

  nb::class_<xrt::uuid>(m, "uuid").def("to_string", &xrt::uuid::to_string);

  nb::class_<xrt::xclbin::mem>(m, "xclbinmem")
      .def("get_tag", &xrt::xclbin::mem::get_tag)
      .def("get_base_address", &xrt::xclbin::mem::get_base_address)
      .def("get_size_kb", &xrt::xclbin::mem::get_size_kb)
      .def("get_used", &xrt::xclbin::mem::get_used)
      .def("get_index", &xrt::xclbin::mem::get_index);
  nb::class_<xrt::xclbin::ip>(m, "xclbinip").def("get_name", &xrt::xclbin::ip::get_name);
  nb::class_<xrt::xclbin::kernel>(m, "xclbinkernel")
      .def("get_name", &xrt::xclbin::kernel::get_name)
      .def("get_num_args", &xrt::xclbin::kernel::get_num_args);
  nb::class_<xrt::xclbin>(m, "xclbin")
      .def(nb::init<const std::string&>())
      .def("get_kernels", &xrt::xclbin::get_kernels)
      .def("get_mems", &xrt::xclbin::get_mems)
      .def("get_xsa_name", &xrt::xclbin::get_xsa_name)
      .def("get_uuid", &xrt::xclbin::get_uuid);

  nb::class_<xrt::device>(m, "device")
      .def(nb::init<unsigned int>())
      .def(nb::init<const std::string&>())
      .def("load_xclbin", [](xrt::device& device, const std::string& path) { return device.load_xclbin(path); })
      .def("load_xclbin", [](xrt::device& device, const xrt::xclbin& image) { return device.load_xclbin(image); })
      .def("get_xclbin_uuid", &xrt::device::get_xclbin_uuid)
      .def("get_info", [](xrt::device& device, xrt::info::device what) {
        return what == xrt::info::device::bdf ? device.get_info<xrt::info::device::bdf>()
                                              : device.get_info<xrt::info::device::name>();
      });

  nb::class_<xrt::run>(m, "run")
      .def(nb::init<const xrt::kernel&>())
      .def("set_arg", &set_argument)
      .def("start", [](xrt::run& run) { run.start(); })
      .def(
          "wait", [](xrt::run& run, unsigned ms) { return run.wait(std::chrono::milliseconds(ms)); },
          nb::arg("timeout") = 0, nb::call_guard<nb::gil_scoped_release>())
      .def("state", &xrt::run::state);

  nb::class_<xrt::kernel> kernel(m, "kernel");
  nb::enum_<xrt::kernel::cu_access_mode>(kernel, "cu_access_mode")
      .value("exclusive", xrt::kernel::cu_access_mode::exclusive)
      .value("shared", xrt::kernel::cu_access_mode::shared);
  kernel
      .def(
          "__init__",
          [](xrt::kernel* self, const xrt::device& device, const xrt::uuid& image, const std::string& name,
             xrt::kernel::cu_access_mode mode) { new (self) xrt::kernel(device, image, name, mode); },
          nb::arg("device"), nb::arg("uuid"), nb::arg("name"), nb::arg("mode") = xrt::kernel::cu_access_mode::shared)
      .def("group_id", &xrt::kernel::group_id)
      .def("read_register", &xrt::kernel::read_register)
      .def("__call__", &call);

  nb::class_<xrt::bo> bo(m, "bo");
  nb::enum_<xrt::bo::flags>(bo, "flags")
      .value("normal", xrt::bo::flags::normal)
      .value("cacheable", xrt::bo::flags::cacheable)
      .value("device_only", xrt::bo::flags::device_only)
      .value("host_only", xrt::bo::flags::host_only)
      .value("p2p", xrt::bo::flags::p2p);
  for (const auto& [name, flag] : {std::pair("normal", xrt::bo::flags::normal),
                                   {"p2p", xrt::bo::flags::p2p},
                                   {"host_only", xrt::bo::flags::host_only},
                                   {"device_only", xrt::bo::flags::device_only}}) {
    bo.attr(name) = flag;
  }
  bo.def("__init__", [](xrt::bo* self, const xrt::device& device, std::size_t size, xrt::bo::flags flags,
                        xrt::memory_group group) { new (self) xrt::bo(device, size, flags, group); })
      .def("__init__", [](xrt::bo* self, const xrt::bo& parent, std::size_t size,
                          std::size_t offset) { new (self) xrt::bo(parent, size, offset); })
      .def("write",
           [](xrt::bo& bo, nb::handle data, std::size_t seek) {
             const View view(data, PyBUF_SIMPLE);
             bo.write(view.data(), view.size(), seek);
           })
      .def("read",
           [](xrt::bo& bo, std::size_t size, std::size_t skip) {
             nb::bytearray data;
             data.resize(size);
             bo.read(data.data(), size, skip);
             return data;
           })
      .def("sync", [](xrt::bo& bo, xclBOSyncDirection way) { bo.sync(way); })
      .def("sync", [](xrt::bo& bo, xclBOSyncDirection way, std::size_t size,
                      std::size_t offset) { bo.sync(way, size, offset); })
      .def("map", &map, nb::keep_alive<0, 1>())
      .def("size", &xrt::bo::size)
      .def("address", &xrt::bo::address);
}
