#![allow(dead_code, clippy::disallowed_methods)]
#[path = "../tests/donor/manager.rs"]
mod manager;
#[path = "../tests/donor/pool.rs"]
mod pool;
use potluck_core::chunk::ChunkName;
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{Request, Status};
use std::io::{Read, Write};
use std::time::Instant;

fn warm(dir: &std::path::Path) {
    let p = dir.join("warm");
    let mut f = std::fs::File::create(&p).unwrap();
    let b = vec![1u8; 1 << 20];
    for _ in 0..1400 { f.write_all(&b).unwrap(); }
    drop(f);
    std::fs::remove_file(&p).unwrap();
}
fn cpu_of(name: &str) -> f64 {
    let mut sum = 0.0;
    for t in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = std::fs::read_to_string(t.path().join("comm")).unwrap_or_default();
        if comm.trim() == name {
            let s = std::fs::read_to_string(t.path().join("schedstat")).unwrap();
            sum += s.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9;
        }
    }
    sum
}
const CHUNK: usize = 4 << 20;
fn floor_put(dir: &std::path::Path, chunks: &[Vec<u8>], files: bool) -> (f64, f64) {
    let per = chunks[0].len();
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = l.local_addr().unwrap();
    let dir = dir.to_owned();
    let (tx, rx) = std::sync::mpsc::channel::<()>();
    let th = std::thread::Builder::new().name("floor-sink".into()).spawn(move || {
        let (mut s, _) = l.accept().unwrap();
        let mut f = std::fs::File::create(dir.join("floor")).unwrap();
        let mut k = 0;
        if files { for i in 0..256 { std::fs::create_dir_all(dir.join(format!("ff/{i:02x}"))).unwrap(); } }
        let mut p = vec![0; 256 << 10];
        let mut h = blake3::Hasher::new();
        let mut in_chunk = 0;
        loop {
            let mut n = 0;
            while n < p.len() { let r = s.read(&mut p[n..]).unwrap(); if r == 0 { break } n += r; }
            if files && in_chunk == 0 && n > 0 { f = std::fs::File::create(dir.join("ff").join(format!("tmp-{k}"))).unwrap(); }
            h.update(&p[..n]); f.write_all(&p[..n]).unwrap();
            in_chunk += n;
            if in_chunk == per { std::hint::black_box(h.finalize()); h.reset(); in_chunk = 0; if files { if std::env::var_os("TRAIL").is_some() { f.write_all(&[7; 64]).unwrap(); } std::fs::rename(dir.join("ff").join(format!("tmp-{k}")), dir.join("ff").join(format!("{:02x}/chunk-{k}", (k * 37) % 256))).unwrap(); k += 1; } }
            if n < p.len() { break }
        }
        drop(f);
        s.write_all(b"k").unwrap();
        rx.recv().ok();
    }).unwrap();
    let t = Instant::now();
    let mut s = std::net::TcpStream::connect(addr).unwrap();
    for c in chunks { s.write_all(c).unwrap(); }
    s.shutdown(std::net::Shutdown::Write).unwrap();
    s.read_exact(&mut [0]).unwrap();
    let wall = t.elapsed().as_secs_f64();
    let cpu = cpu_of("floor-sink");
    drop(tx); th.join().unwrap();
    (cpu, wall)
}
fn floor_get(dir: &std::path::Path, len: u64, sink: &mut [u8]) -> (f64, f64) {
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = l.local_addr().unwrap();
    let dir = dir.to_owned();
    let (tx, rx) = std::sync::mpsc::channel::<()>();
    let th = std::thread::Builder::new().name("floor-src".into()).spawn(move || {
        let (s, _) = l.accept().unwrap();
        let f = std::fs::File::open(dir.join("floor")).unwrap();
        let mut o = 0;
        while o < len { rustix::fs::sendfile(&s, &f, Some(&mut o), CHUNK).unwrap(); }
        rx.recv().ok();
    }).unwrap();
    let t = Instant::now();
    let mut s = std::net::TcpStream::connect(addr).unwrap();
    let mut left = len as usize;
    while left > 0 { let n = s.read(sink).unwrap(); left -= n; }
    let wall = t.elapsed().as_secs_f64();
    let cpu = cpu_of("floor-src");
    drop(tx); th.join().unwrap();
    (cpu, wall)
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let chunk: usize = args.get(1).map_or(CHUNK, |a| a.parse().unwrap());
    let total = 1usize << 30;
    let rounds = 3;
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let pool = pool::Pool::lending(100 << 30).await;
        eprintln!("store in {}", pool.place.lent().display());
        let base = pool::content(1, chunk);
        let gib = total as f64 / (1u64 << 30) as f64;
        let mut sink = vec![0; 256 << 10];
        let mut ff = vec![];
        let (mut fp, mut dp, mut fg, mut dg) = (vec![], vec![], vec![], vec![]);
        let (mut fpw, mut dpw, mut dgw) = (vec![], vec![], vec![]);
        for round in 0..rounds {
            let chunks: Vec<Vec<u8>> = (0..total / chunk).map(|i| { let mut c = base.clone(); c[..8].copy_from_slice(&((round * 1_000_000 + i) as u64).to_le_bytes()); c }).collect();
            let names: Vec<_> = chunks.iter().map(|c| ChunkName::of(c)).collect();
            rustix::fs::sync(); warm(pool.place.lent().parent().unwrap());
            let (c, _) = floor_put(&pool.place.lent().parent().unwrap(), &chunks[..(64 << 20) / chunk], true);
            ff.push(c / gib);
            rustix::fs::sync(); warm(pool.place.lent().parent().unwrap());
            std::fs::remove_dir_all(pool.place.lent().parent().unwrap().join("ff")).unwrap();
            rustix::fs::sync(); warm(pool.place.lent().parent().unwrap());
            let (c, w) = floor_put(&pool.place.lent().parent().unwrap(), &chunks, false);
            fp.push(c / gib); fpw.push(w);
            rustix::fs::sync(); warm(pool.place.lent().parent().unwrap());
            let (c, _) = floor_get(&pool.place.lent().parent().unwrap(), total as u64, &mut sink);
            fg.push(c / gib);
            rustix::fs::sync(); warm(pool.place.lent().parent().unwrap());
            let mut client = pool.client().await;
            // first frame makes the thread
            let before = 0.0; let _ = before;
            let t = Instant::now();
            let mut inflight = 0;
            for (c, n) in chunks.iter().zip(&names) {
                client.send(Request::Put { name: *n, ack: AckLevel::Memory, len: chunk as u32 }, c).await.unwrap();
                inflight += 1;
                if inflight >= 8 { assert_eq!(client.reply().await.unwrap().unwrap().status, Status::Ok); inflight -= 1; }
            }
            while inflight > 0 { assert_eq!(client.reply().await.unwrap().unwrap().status, Status::Ok); inflight -= 1; }
            dpw.push(t.elapsed().as_secs_f64());
            let put = cpu_of("potluck-bulk");
            dp.push(put / gib);
            for t in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                if std::fs::read_to_string(t.path().join("comm")).unwrap().trim() == "potluck-bulk" {
                    let st = std::fs::read_to_string(t.path().join("status")).unwrap();
                    eprint!("{} ", st.lines().find(|l| l.starts_with("volun")).unwrap().split_whitespace().last().unwrap());
                }
            }
            rustix::fs::sync();
            drop(client);
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            if std::env::var_os("PAUSE").is_some() { eprintln!("GETTING"); }
            let mut client = pool.client().await;
            let put = cpu_of("potluck-bulk");
            let t = Instant::now();
            for n in &names[..4] { client.send(Request::Get { name: *n }, &[]).await.unwrap(); }
            for i in 0..names.len() {
                if let Some(n) = names.get(i + 4) { client.send(Request::Get { name: *n }, &[]).await.unwrap(); }
                let r = client.reply().await.unwrap().unwrap();
                let mut left = r.body as usize;
                while left > 0 { let w = left.min(sink.len()); left -= client.opened.inbox.body(&mut client.opened.io, &mut sink[..w]).await.unwrap(); }
            }
            dgw.push(t.elapsed().as_secs_f64());
            for t in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                if std::fs::read_to_string(t.path().join("comm")).unwrap().trim() == "potluck-bulk" {
                    let st = std::fs::read_to_string(t.path().join("status")).unwrap();
                    eprint!("get switches {} ", st.lines().find(|l| l.starts_with("volun")).unwrap().split_whitespace().last().unwrap());
                }
            }
            dg.push((cpu_of("potluck-bulk") - put) / gib);
            drop(client);
            if std::env::var_os("NODELETE").is_none() { for n in &names { std::fs::remove_file(pool.place.chunk(n)).unwrap(); } }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        let med = |v: &mut Vec<f64>| { v.sort_by(|a, b| a.total_cmp(b)); v[v.len() / 2] };
        let (a, b, c, d) = (med(&mut fp), med(&mut dp), med(&mut fg), med(&mut dg));
        println!("put CPU-s/GiB floor {a:.3} donor {b:.3} ratio {:.2} | wall floor {:.3} donor {:.3}", b / a, med(&mut fpw), med(&mut dpw));
        println!("get CPU-s/GiB floor {c:.3} donor {d:.3} ratio {:.2} | wall donor {:.3}", d / c, med(&mut dgw));
        println!("floor in files {:.3}: {ff:.3?}", med(&mut ff));
        println!("  put floors {fp:.3?} donors {dp:.3?}");
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        println!("{}", status.lines().filter(|l| l.starts_with("VmRSS")||l.starts_with("VmHWM")).collect::<Vec<_>>().join(" "));
    });
}
