# Toolchain of `scripts/arm_build.sh`: Debian's cross compiler for 64-bit ARM, libraries unpacked by arm_packages.sh into ARM_ROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ARM_ROOT)
set(OPENSSL_USE_STATIC_LIBS ON)
set(ZLIB_USE_STATIC_LIBS ON)
set(OPENSSL_INCLUDE_DIR ${ARM_ROOT}/usr/include)
set(OPENSSL_CRYPTO_LIBRARY ${ARM_ROOT}/usr/lib/aarch64-linux-gnu/libcrypto.a)
set(ZLIB_INCLUDE_DIR ${ARM_ROOT}/usr/include)
set(ZLIB_LIBRARY ${ARM_ROOT}/usr/lib/aarch64-linux-gnu/libz.a)
# OpenSSL's headers for one architecture are in a folder of their own.
include_directories(SYSTEM ${ARM_ROOT}/usr/include/aarch64-linux-gnu)
