//! Shifts of hue, by way of hue, saturation and value in bytes.

use super::color::channels;

/// Shifts the hue of each pixel, a byte that begins again after the last, as PIL has it.
pub fn shift_hue(shift: u8, image: &mut [u8]) {
    let [reds, greens, blues] = channels(image);
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let hsv = Hsv::from_rgb([*red, *green, *blue]);
        [*red, *green, *blue] = Hsv { hue: hsv.hue.wrapping_add(shift), ..hsv }.to_rgb();
    }
}

struct Hsv {
    hue: u8,
    saturation: u8,
    value: u8,
}

impl Hsv {
    fn from_rgb([red, green, blue]: [u8; 3]) -> Self {
        let (value, least) = (red.max(green).max(blue), red.min(green).min(blue));
        if value == least {
            return Self { hue: 0, saturation: 0, value };
        }
        let span = f32::from(value - least);
        let below = |channel: u8| f64::from(f32::from(value - channel) / span);
        // Sixths of the circle, rounded where PIL rounds them.
        let sixths = match value {
            _ if red == value => below(blue) - below(green),
            _ if green == value => 2.0 + below(red) - below(blue),
            _ => 4.0 + below(green) - below(red),
        };
        let turns = ((f64::from(sixths as f32) / 6.0 + 1.0) % 1.0) as f32;
        let saturation = span / f32::from(value);
        let byte = |share: f32| (f64::from(share) * 255.0) as u8;
        Self { hue: byte(turns), saturation: byte(saturation), value }
    }

    fn to_rgb(&self) -> [u8; 3] {
        let &Self { hue, saturation, value } = self;
        if saturation == 0 {
            return [value; 3];
        }
        let sixths = (f64::from(hue) * 6.0 / 255.0) as f32;
        let (sector, within) = (sixths.floor(), f64::from(sixths - sixths.floor()));
        let share = f64::from((f64::from(saturation) / 255.0) as f32);
        let faded = |part: f64| (f64::from(value) * (1.0 - share * part)).round() as u8;
        let (low, falling, rising) = (faded(1.0), faded(within), faded(1.0 - within));
        match sector as u8 % 6 {
            0 => [value, rising, low],
            1 => [falling, value, low],
            2 => [low, value, rising],
            3 => [low, falling, value],
            4 => [rising, low, value],
            _ => [value, low, falling],
        }
    }
}
