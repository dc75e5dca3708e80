// Tenon from Rust, through its C interface: rustc embed.rs -L build -l tenon_c
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr;

#[repr(C)]
struct SimulatedDevice {
    struct_bytes: usize,
    capacity_bytes: u64,
    lag_ns: u64,
    real_memory: c_int,
}

#[repr(C)]
#[derive(Default)]
struct Statistics {
    struct_bytes: usize,
    blocks: i64,
    requested_bytes: i64,
    requested_peak_bytes: i64,
    allocated_bytes: i64,
    allocated_peak_bytes: i64,
    reserved_bytes: i64,
    reserved_peak_bytes: i64,
    allocations: i64,
    retries: i64,
    out_of_memories: i64,
}

#[link(name = "tenon_c")]
extern "C" {
    fn tenon_version() -> *const c_char;
    fn tenon_last_error() -> *const c_char;
    fn tenon_backend_simulated(device: *const SimulatedDevice, out: *mut u64) -> c_int;
    fn tenon_backend_destroy(backend: u64) -> c_int;
    fn tenon_allocator_create(
        backend: u64,
        policy: *const c_char,
        options: *const c_void,
        out: *mut u64,
    ) -> c_int;
    fn tenon_allocator_destroy(allocator: u64) -> c_int;
    fn tenon_allocate(allocator: u64, size: u64, stream: u32, out: *mut *mut c_void) -> c_int;
    fn tenon_free(allocator: u64, data: *mut c_void) -> c_int;
    fn tenon_allocator_statistics(allocator: u64, out: *mut Statistics) -> c_int;
}

const OUT_OF_MEMORY: c_int = 4;

fn last_error() -> String {
    unsafe { CStr::from_ptr(tenon_last_error()) }.to_string_lossy().into_owned()
}

fn check(status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

// A policy over a simulated device of a given size. Blocks borrow it, so they cannot outlive it.
struct Allocator {
    backend: u64,
    allocator: u64,
}

impl Allocator {
    fn new(policy: &str, capacity_bytes: u64) -> Result<Self, String> {
        let device = SimulatedDevice {
            struct_bytes: std::mem::size_of::<SimulatedDevice>(),
            capacity_bytes,
            lag_ns: 0,
            real_memory: 1,
        };
        let name = CString::new(policy).map_err(|error| error.to_string())?;
        // Handle 0 is none, so what was made before a failure is given back by drop.
        let mut made = Self { backend: 0, allocator: 0 };
        unsafe {
            check(tenon_backend_simulated(&device, &mut made.backend))?;
            check(tenon_allocator_create(
                made.backend,
                name.as_ptr(),
                ptr::null(),
                &mut made.allocator,
            ))?;
        }
        Ok(made)
    }

    fn allocate(&self, size: u64) -> Result<Block<'_>, c_int> {
        let mut data = ptr::null_mut();
        match unsafe { tenon_allocate(self.allocator, size, 0, &mut data) } {
            0 => Ok(Block { owner: self, data, size }),
            status => Err(status),
        }
    }

    fn statistics(&self) -> Result<Statistics, String> {
        let mut out =
            Statistics { struct_bytes: std::mem::size_of::<Statistics>(), ..Default::default() };
        check(unsafe { tenon_allocator_statistics(self.allocator, &mut out) })?;
        Ok(out)
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        unsafe {
            tenon_allocator_destroy(self.allocator);
            tenon_backend_destroy(self.backend);
        }
    }
}

struct Block<'a> {
    owner: &'a Allocator,
    data: *mut c_void,
    size: u64,
}

impl Block<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        if self.data.is_null() {
            return &mut []; // a block of 0 bytes; a slice must not be null
        }
        unsafe { std::slice::from_raw_parts_mut(self.data as *mut u8, self.size as usize) }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        unsafe { tenon_free(self.owner.allocator, self.data) };
    }
}

fn main() -> Result<(), String> {
    println!("tenon {}", unsafe { CStr::from_ptr(tenon_version()) }.to_string_lossy());
    let allocator = Allocator::new("stitched", 256 << 20)?;
    let mut blocks: Vec<Block> = (0..100)
        .map(|_| allocator.allocate(2 << 20))
        .collect::<Result<_, _>>()
        .map_err(|_| last_error())?;
    for (i, block) in blocks.iter_mut().enumerate() {
        block.bytes().fill(i as u8);
    }
    // Every other block goes: what is left free is in pieces of 2 MiB, and 80 MiB still fit, since
    // `stitched` moves pages together.
    let mut odd = false;
    blocks.retain(|_| {
        odd = !odd;
        odd
    });
    assert_eq!(blocks[10].bytes()[0], 20);
    let large = allocator.allocate(80 << 20).map_err(|_| last_error())?;
    let stats = allocator.statistics()?;
    println!("{} blocks, {} MiB requested, {} MiB reserved", stats.blocks,
             stats.requested_bytes >> 20, stats.reserved_bytes >> 20);
    assert_eq!(allocator.allocate(200 << 20).err(), Some(OUT_OF_MEMORY));
    println!("{}", last_error());
    assert!(allocator.allocate(0).map_err(|_| last_error())?.bytes().is_empty());
    drop(large);
    drop(blocks);
    let refused = Allocator::new("no such policy", 1 << 30).err();
    assert!(refused.is_some_and(|message| message.contains("no such policy")));
    Ok(())
}
