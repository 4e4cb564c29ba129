fn main() {
    let mut args = std::env::args().skip(1);
    let (file, runs) = (args.next().unwrap(), args.next().unwrap());
    let sets: Vec<String> = args.collect();
    let e = kvlab_engine::registry::with_known(|k| kvlab_config::Experiment::load(file.as_ref(), &sets, k));
    let e = match e {
        Ok(e) => e,
        Err(e) => {
            eprintln!("{e}");
            return;
        }
    };
    let o = kvlab_lab::CompareOptions {
        runs: runs.into(),
        ..Default::default()
    };
    let t = std::time::Instant::now();
    match kvlab_lab::compare(&e, &o, &mut |p| eprintln!("{:.1} {p}", t.elapsed().as_secs_f64())) {
        Ok(c) => println!("{}\n{}\n{:?}", c.table(Some(140)), c.folder.display(), t.elapsed()),
        Err(e) => println!("{e}"),
    }
}
